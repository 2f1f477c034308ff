"""Arguments that another program hands on to Megatron-Core's configurations, as options and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symsim.importers.keys import Entry, Keys
from symsim.importers.megatron.reader import TABLE, as_written
from symsim.importers.megatron.source import Source
from symsim.importers.megatron.strategy import read_strategy

if TYPE_CHECKING:
    from symsim.inputs.architecture import Architecture

# which the other program's own keys say
_OWN = ("seq_length", "micro_batch_size", "num_microbatches")


def handed(keys: Keys, source: Source, strategy: dict[str, Any], assumptions: dict[str, str], architecture: "Architecture | None") -> list[Entry]:
    """Set the options that the arguments of `source` give, and return the rows of these, which are then no rows of `keys`. InputError for a
    value that cannot be."""
    inner = Keys("Megatron-Core", source.given, TABLE, keys.lenient)
    settings = read_strategy(inner, source.dialect, architecture)
    strategy |= {name: value for name, value in settings.options.items() if name not in _OWN}
    assumptions |= settings.assumptions
    rows = as_written(source, inner.finish())
    read = {row.key for row in rows}
    for key in read:
        keys.rows.pop(key, None)
    keys.given = {key: one for key, one in keys.given.items() if key not in read}
    return [row for row in rows if row.value != "(default)" or row.fate in ("derived", "not_modelled")]
