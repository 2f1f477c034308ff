"""Which layers a model has, in order: runs of kinds, and the text that stands for them."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

from symsim.inputs.limits import MOST_LAYERS, Layers


class Part(BaseModel):
    """A frozen part of the schema that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Segment(Part):
    """`repeat` times the layers `kinds`, in order."""

    repeat: Layers
    kinds: tuple[str, ...]


_TERM = re.compile(r"\s*(?:(\d+)\s*\*\s*)?(?:\(([^()]*)\)|([A-Za-z_]\w*))\s*")


def parse_layers(text: str) -> tuple[Segment, ...]:
    """Run-length layer pattern: `3 * dense + 58 * moe`, `24 * (dense + moe)`, `4 * (5 * local + full) + 2 * local`.

    ValueError quotes the part that does not read.
    """
    segments: list[Segment] = []
    position = 0
    while True:
        match = _TERM.match(text, position)
        if not match:
            raise ValueError(f"layer pattern does not read at '{text[position:] or text}'")
        count = int(match[1]) if match[1] else 1
        if match[2] is not None:
            inside = parse_layers(match[2])
            refuse_deep(inside)
            kinds = tuple(k for inner in inside for k in inner.kinds * inner.repeat)
        else:
            kinds = (match[3],)
        if not 1 <= count <= MOST_LAYERS:
            raise ValueError(f"layer pattern repeats '{match[0].strip()}' {count} times; from 1 to {MOST_LAYERS} layers are read")
        segments.append(Segment(repeat=count, kinds=kinds))
        position = match.end()
        if position == len(text):
            return tuple(segments)
        if text[position] != "+":
            raise ValueError(f"layer pattern does not read at '{text[position:]}'")
        position += 1


def refuse_deep(segments: tuple[Segment, ...]) -> None:
    layers = sum(s.repeat * len(s.kinds) for s in segments)
    if layers > MOST_LAYERS:
        raise ValueError(f"{layers} layers are too many: at most {MOST_LAYERS} are read")


def format_layers(segments: tuple[Segment, ...]) -> str:
    """The text that `parse_layers` reads back."""

    def unit(kinds: tuple[str, ...]) -> str:
        runs: list[list] = []
        for kind in kinds:
            if runs and runs[-1][0] == kind:
                runs[-1][1] += 1
            else:
                runs.append([kind, 1])
        text = " + ".join(k if n == 1 else f"{n} * {k}" for k, n in runs)
        return text if len(runs) == 1 and runs[0][1] == 1 else f"({text})"

    return " + ".join(unit(s.kinds) if s.repeat == 1 and len(s.kinds) == 1 else f"{s.repeat} * {unit(s.kinds)}" for s in segments)


def compress(kinds: list[str]) -> tuple[Segment, ...]:
    """Run-length segments of a list of layer kinds, with the shortest repeating unit found greedily."""
    segments: list[Segment] = []
    start = 0
    while start < len(kinds):
        best_period, best_repeat = 1, 1
        for period in range(1, min(16, len(kinds) - start) + 1):
            repeat = 1
            while kinds[start + repeat * period : start + (repeat + 1) * period] == kinds[start : start + period]:
                repeat += 1
            covered, best = repeat * period, best_repeat * best_period
            if (repeat > 1 or period == 1) and covered > best:
                best_period, best_repeat = period, repeat
        segments.append(Segment(repeat=best_repeat, kinds=tuple(kinds[start : start + best_period])))
        start += best_repeat * best_period
    return tuple(segments)
