"""Rows of a sweep as columns, checked, and the part that holds those of one block.

A part: magic, length of the header (8 bytes), header (JSON), the columns' bytes, CRC-32 of all that (4 bytes); all little-endian, each
piece padded to 8 bytes. Not .npz or Arrow: the one is slow for small parts, the other lacks a checksum, and CSV should not need pyarrow.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from symsim.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    Rows = Mapping[str, np.ndarray]
    Coded = dict[str, "np.ndarray | Texts"]

_MAGIC = b"symsimP1"


@dataclass(frozen=True)
class Column:
    """A column of the rows: int64, float64, bool or str values, as its kind says, and none missing (a float may be NaN)."""

    name: str
    unit: str
    meaning: str
    kind: Literal["integer", "number", "boolean", "text"]


@dataclass(frozen=True)
class Texts:
    """A column of texts: row i is `values[codes[i]]`; codes are int32, values distinct and in the order they first appear."""

    codes: np.ndarray
    values: list[str]

    def __len__(self) -> int:
        return len(self.codes)

    def plain(self) -> np.ndarray:
        import numpy as np

        return np.array(self.values, dtype=object)[self.codes]


def encoded(columns: Sequence[Column], rows: Rows) -> Coded:
    """The rows as the columns have them; ValueError where they are not the columns' or would lose something."""
    import numpy as np

    types = {"integer": np.int64, "number": np.float64, "boolean": np.bool_}
    if set(rows) != {column.name for column in columns}:
        raise ValueError(f"the rows' columns are {', '.join(rows)}; they should be {', '.join(column.name for column in columns)}")
    coded: Coded = {}
    for column in columns:
        values = np.asarray(rows[column.name])
        if values.ndim != 1 or len(values) != len(rows[columns[0].name]):
            raise ValueError(f"column {column.name} has the shape {values.shape} beside {len(rows[columns[0].name])} rows")
        if column.kind == "text":
            coded[column.name] = _coded_texts(column.name, values)
        elif np.can_cast(values.dtype, types[column.kind], "safe"):
            coded[column.name] = np.ascontiguousarray(values, types[column.kind])
        else:
            raise ValueError(f"column {column.name} is {values.dtype}, which is not {column.kind} without loss")
    return coded


def _coded_texts(name: str, values: np.ndarray) -> Texts:
    import numpy as np

    seen: dict[str, int] = {}
    codes = np.fromiter((seen.setdefault(text, len(seen)) for text in values.tolist()), np.int32, len(values))
    if not all(isinstance(text, str) for text in seen):
        raise ValueError(f"column {name} holds a value that is not text")
    try:
        "".join(seen).encode()
    except UnicodeEncodeError:
        raise InputError(f"column {name} holds text with half a Unicode character, which no file can hold") from None
    return Texts(codes, list(seen))


class Damaged(Exception):
    """A part that is torn, altered or of another sweep."""


def write_part(file: BinaryIO, key: str, block: int, coded: Coded) -> None:
    stored = [_stored(values) for values in coded.values()]
    kinds = [[array.dtype.str, values.values if isinstance(values, Texts) else None] for array, values in zip(stored, coded.values(), strict=True)]
    header = json.dumps({"key": key, "block": block, "rows": len(stored[0]) if stored else 0, "columns": kinds}).encode()
    header += b" " * (-len(header) % 8)
    checksum = 0
    for piece in (memoryview(_MAGIC + len(header).to_bytes(8, "little") + header), *(array.data for array in stored)):
        for content in (piece, bytes(-piece.nbytes % 8)):
            checksum = zlib.crc32(content, checksum)
            file.write(content)
    file.write(checksum.to_bytes(4, "little"))


def _stored(values: np.ndarray | Texts) -> np.ndarray:
    """Little-endian values; whole numbers in as few bytes as hold them, for most columns of a sweep are small ones."""
    import numpy as np

    array = values.codes if isinstance(values, Texts) else values
    if array.dtype.kind != "i":
        return array.astype(array.dtype.newbyteorder("<"), copy=False)
    low, high = (array.min(), array.max()) if array.size else (0, 0)
    kind = next(kind for kind in ("<i1", "<i2", "<i4", "<i8") if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    return array.astype(kind, copy=False)


def read_part(path: Path, key: str, block: int, columns: Sequence[Column]) -> Coded:
    """The rows of a part, in writable arrays; Damaged when they are not what was written for this block of this sweep."""
    import numpy as np

    content = np.fromfile(path, np.uint8)
    body = content[:-4]
    if len(body) < 16 or body[:8].tobytes() != _MAGIC or zlib.crc32(body.data) != int.from_bytes(content[-4:].tobytes(), "little"):
        raise Damaged
    end = 16 + int.from_bytes(body[8:16].tobytes(), "little")
    header = json.loads(body[16:end].tobytes())
    if header["key"] != key or header["block"] != block or len(header["columns"]) != len(columns):
        raise Damaged
    types = {"integer": np.int64, "number": np.float64, "boolean": np.bool_, "text": np.int32}
    coded: Coded = {}
    for column, (kind, texts) in zip(columns, header["columns"], strict=True):
        start, size = end, header["rows"] * np.dtype(kind).itemsize
        end += size + -size % 8
        values = body[start : start + size].view(kind).astype(types[column.kind], copy=False)
        coded[column.name] = Texts(values, texts) if column.kind == "text" else values
    return coded
