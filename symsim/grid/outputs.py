"""The rows of a sweep as the file they become: Parquet or CSV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from symsim.grid.rows import Column, Texts

if TYPE_CHECKING:
    import numpy as np

    from symsim.grid.rows import Coded

_ROW_GROUP = 2**20
_CSV_ROWS = 2**15


def write_parquet(file: BinaryIO, columns: Sequence[Column], parts: Iterable[Coded], metadata: Mapping[str, str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(), "text": pa.dictionary(pa.int32(), pa.string())}
    fields = [pa.field(c.name, types[c.kind], nullable=False, metadata={"unit": c.unit, "meaning": c.meaning}) for c in columns]
    schema = pa.schema(fields, metadata={f"symsim.{name}": text for name, text in metadata.items()})

    def array(values: np.ndarray | Texts) -> Any:
        if isinstance(values, Texts):
            return pa.DictionaryArray.from_arrays(pa.array(values.codes), pa.array(values.values, pa.string())).dictionary_decode()
        return pa.array(values)

    # Row groups are cut by their number of rows alone, so small blocks make no small groups; and texts are coded anew
    # for each, so that a group carries only the texts it uses.
    plain = pa.schema([field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in fields])
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        waiting, rows = [], 0
        for part in parts:
            waiting.append(pa.table([array(values) for values in part.values()], schema=plain))
            rows += len(waiting[-1])
            while rows >= _ROW_GROUP:
                joined = pa.concat_tables(waiting)
                writer.write_table(joined.slice(0, _ROW_GROUP).combine_chunks().cast(schema), row_group_size=_ROW_GROUP)
                waiting, rows = [joined.slice(_ROW_GROUP)], rows - _ROW_GROUP
        if rows:
            writer.write_table(pa.concat_tables(waiting).combine_chunks().cast(schema), row_group_size=_ROW_GROUP)


def write_csv(file: BinaryIO, columns: Sequence[Column], parts: Iterable[Coded]) -> None:
    file.write((",".join(_quoted(column.name) for column in columns) + "\n").encode())
    for part in parts:
        rows = len(next(iter(part.values())))
        for start in range(0, rows, _CSV_ROWS):
            cells = [_printed(values, slice(start, start + _CSV_ROWS)) for values in part.values()]
            file.write(("\n".join(map(",".join, zip(*cells, strict=True))) + "\n").encode())


def _printed(values: np.ndarray | Texts, span: slice) -> Iterable[str]:
    import numpy as np

    if isinstance(values, Texts):
        return Texts(values.codes[span], [_quoted(text) for text in values.values]).plain().tolist()
    if values.dtype.kind == "b":
        return np.where(values[span], "true", "false").tolist()
    if values.dtype.kind == "i":
        return map(str, values[span].tolist())
    # Printing is what takes the time, and the numbers of a sweep repeat. As bits, for 0.0 and -0.0 are equal. repr is
    # the shortest text that reads back as the same number.
    bits, where = np.unique(values[span].view(np.int64), return_inverse=True)
    return np.array([repr(number) for number in bits.view(np.float64).tolist()], dtype=object)[where].tolist()


def _quoted(text: str) -> str:
    # An empty text is quoted too: in a table of one column its line would otherwise be blank, which readers skip.
    return '"' + text.replace('"', '""') + '"' if text == "" or any(mark in text for mark in ',"\r\n') else text
