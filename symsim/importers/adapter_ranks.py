"""Ranks of adapters by names of modules (peft rank_pattern)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from symsim.errors import cut
from symsim.importers.adapted import adapted_places
from symsim.importers.converted import weights_called
from symsim.importers.keys import Keys, natural
from symsim.importers.parameters import Places, matching
from symsim.importers.targets import Maps, merge
from symsim.inputs.architecture import Architecture
from symsim.inputs.limits import MOST_PATTERNS

_LEFT_OUT = "of too many ranges of layers to be told"


def ranks(keys: Keys, key: str, strategy: dict[str, Any], architecture: Architecture | None, more: Mapping[str, int]) -> None:
    """Ranks of single adapters, by patterns of the whole name of a module, or of its end behind a dot; the first counts (peft utils/other.py
    get_pattern_key). more: patterns behind them."""
    given = keys.given[key].value if keys.has(key) else None
    if given is not None and not isinstance(given, Mapping):
        raise keys.wrong(key, "ranks by names of linear maps, such as {q_proj: 16}")
    if any(not natural(rank) for rank in (given or {}).values()):
        raise keys.wrong(key, "a whole number above 0 for each name")
    asked = {**{str(name): natural(rank) or 0 for name, rank in (given or {}).items()}, **more}
    if not asked or strategy.get("tuner_type") != "lora":
        return
    if architecture is None:
        keys.note(key, "not_modelled", "rank_pattern", "of a known model alone: all adapters have lora_rank here")
        return
    maps = Maps(architecture, strategy)
    if maps.te:
        keys.note(key, "not_modelled", "rank_pattern", "of modules that run one by one alone: all adapters have lora_rank here")
        return
    made, idle = _entries(asked, maps, adapted_places(strategy, architecture))
    if len(made) > MOST_PATTERNS:
        keys.note(key, "not_modelled", "rank_pattern", f"ranks {_LEFT_OUT}: all adapters have lora_rank here")
        return
    if made:
        strategy["rank_pattern"] = made
    if idle and given:
        keys.note(key, to="rank_pattern", why=f"{cut(', '.join(idle))}: of no adapter, or said before")
    elif given:
        keys.note(key, to="rank_pattern")


def _entries(asked: Mapping[str, int], maps: Maps, adapted: Places) -> tuple[list[str], list[str]]:
    """Entries of rank_pattern, and the patterns that are the first to mean no adapter."""
    called = [(weight, at, names) for weight, at, names in weights_called(maps) if at in adapted.get(weight, ())]
    left, made, idle = set(range(len(called))), list[str](), list[str]()
    ends = [{end for name in names for end in _ends(name)} for _, _, names in called]
    every = set[str]().union(*ends)
    for pattern, rank in asked.items():
        found = matching(pattern, every)
        own = {i for i in left if not found.isdisjoint(ends[i])}
        places = Places()
        for i in own:
            merge(places, {called[i][0]: {called[i][1]}})
        made += [f"{name}={rank}" for name in maps.entries(places)[0]]
        idle += [] if own else [pattern]
        left -= own
    return made, idle


def _ends(name: str) -> Iterator[str]:
    """A name, and its ends behind dots."""
    words = name.split(".")
    return (".".join(words[n:]) for n in range(len(words)))
