"""Lengths of samples in a row, which no file of a trainer tells: what --var says of them, and what a packed row is until it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symsim.errors import InputError, cut
from symsim.importers.keys import Keys
from symsim.importers.ranks import variable
from symsim.inputs.lengths import documents
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy

if TYPE_CHECKING:
    from symsim.importers.reading import Options

SAID = ("packed_document_length", "document_lengths")
ASK = "--var packed_document_length=N gives their mean length, --var document_lengths=lognormal:MEAN+CV or @FILE their distribution"
WHOLE = f"rows are full, and each is taken as one sample, whose attention is the most that a row can have: {ASK}"
LONGEST = "rows are as long as their longest sample: every row is timed at the longest there may be"


def documents_said(options: "Options", strategy: dict[str, Any]) -> str:
    """Set what --var says of lengths; the option that it is, or nothing. InputError for what says none, or for both."""
    mean = variable(options, SAID[0])
    text = options.variables.get(SAID[1])
    if text is None:
        strategy |= {} if mean is None else {SAID[0]: mean}
        return "" if mean is None else SAID[0]
    if mean is not None:
        raise InputError("--var document_lengths and --var packed_document_length both say how long samples are; give one of them")
    try:
        documents(Strategy(document_lengths=text))
    except ValueError:
        raise InputError(f"--var document_lengths={cut(text, 60)}: is too long a text") from None
    strategy[SAID[1]] = text
    return SAID[1]


def packed_rows(keys: Keys, key: str, said: str) -> None:
    """The row of the key that packs samples which do not see each other. said: the option that --var set."""
    if said:
        keys.note(key, "mapped", f"seq_length, {said}", "rows are full; attention stays inside a sample")
    else:
        keys.note(key, "derived", "seq_length", WHOLE)


def free_rows(keys: Keys, key: str, said: str, strategy: dict[str, Any]) -> None:
    """The row of the key that lays samples one after the other without padding, which are not packed."""
    if said:
        strategy["padding_free"] = True
        keys.note(key, "mapped", f"padding_free, {said}", "work of rows of the mean length, memory of the longest")
    else:
        keys.note(key, "derived", "seq_length", f"{LONGEST}; {ASK}")


def padded_rows(keys: Keys, key: str, said: str, strategy: dict[str, Any]) -> None:
    """The row of the key that pads rows of one sample to the longest of their micro-batch: one row alone is as long as its sample."""
    if said and strategy.get("micro_batch_size", 1) == 1:
        strategy["padding_free"] = True
        keys.note(key, "mapped", f"padding_free, {said}", "work of rows of the mean length, memory of the longest")
        return
    if said:
        del strategy[said]
    keys.note(key, "derived", "seq_length", LONGEST if said else f"{LONGEST}; {ASK}")


def fitting(strategy: dict[str, Any], tokens: int) -> int:
    """Rows of their mean length that so many tokens hold; one where nothing says how long they are."""
    told = documents(load_strategy({name: strategy[name] for name in SAID if name in strategy}))
    return max(1, int(tokens / told.mean)) if told is not None else 1


def balanced(keys: Keys, assumptions: dict[str, str], *names: str) -> None:
    """Keys that put samples of like lengths, or as much work, into the rows of a step."""
    for name in names:
        if keys.flag(name, False):
            assumptions["row_balance"] = "balanced"
            keys.note(name, "mapped", "assume.row_balance", "rows of one step have about as much work: ranks do not wait for the longest")
