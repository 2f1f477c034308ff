"""What each assumption moves, and by how much, on three models that many know, as it was measured last: derivations/effects.json."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from pydantic import BaseModel, ConfigDict

from symsim.inputs.reading import parse_json, read_text
from symsim.inputs.shipped import derivations_directory
from symsim.inputs.validation import validate

QUANTITIES = {
    "forward": "FLOPs of a forward",
    "backward": "FLOPs of a backward",
    "recompute": "FLOPs computed again",
    "messages": "bytes handed to messages",
    "saved": "saved bytes of a micro-batch",
    "peak": "peak memory",
    "step": "time of a step",
    "mfu": "MFU",
}


class Effect(BaseModel):
    """One alternative to a default: by quantity the change over the default's number, a share."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    assumption: str
    choice: str
    moves: dict[str, dict[str, float]]
    refused: str = ""


class File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    system: str
    cases: dict[str, str]
    effects: tuple[Effect, ...]


@cache
def stored() -> File:
    """The effects that were measured last."""
    path = derivations_directory() / "effects.json"
    document = parse_json(read_text(path), str(path))
    return validate(File, document.data, document.where, document)


def said(effect: Effect) -> str:
    """One line: half: forward -2.1 % gpt3-175b, -5.3 % llama3-70b; step ..."""
    by_quantity = {q: [f"{_percent(m[q])} % {model}" for model, m in effect.moves.items() if q in m] for q in QUANTITIES}
    return _said(effect, [f"{q} {', '.join(amounts)}" for q, amounts in by_quantity.items() if amounts])


def said_in_brief(effect: Effect, quantities: Iterable[str] = QUANTITIES) -> str:
    """The same with the least and the most of the models that it moves: half: forward -6.7 to -2.1 %, step ...; of these quantities alone."""
    parts = []
    for quantity in quantities:
        shares = sorted(m[quantity] for m in effect.moves.values() if quantity in m)
        if shares:
            least, most = _percent(shares[0]), _percent(shares[-1])
            parts.append(f"{quantity} {least if least == most else f'{least} to {most}'} %")
    return _said(effect, parts)


def _percent(share: float) -> str:
    # two digits, and none as a power of ten
    return f"{100 * share:+.0f}" if abs(share) >= 0.995 else f"{100 * share:+.2g}"


def _said(effect: Effect, parts: list[str]) -> str:
    if effect.refused and not parts:
        return f"{effect.choice}: refused in these cases"
    return f"{effect.choice}: {'; '.join(parts) or 'moves none of the three'}"
