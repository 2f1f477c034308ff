"""How many ranks a job runs on, where its files leave that to the launcher."""

from __future__ import annotations

from collections.abc import Iterable
from math import lcm
from typing import Any

from symsim.errors import InputError, cut, nearest
from symsim.importers.keys import Entry, Keys
from symsim.importers.reading import Options
from symsim.inputs.strategies import LARGEST_WORLD

NODE = 8
WORLD = ("world", "world_size", "WORLD_SIZE", "NGPU", "num_processes", "nproc_per_node")


def known_variables(options: Options, others: Iterable[str] = ()) -> None:
    """InputError for a --var of another name than those that say how many ranks, and the others."""
    valid = [*WORLD, *others]
    for name in options.variables:
        if name not in valid:
            raise InputError(f"--var {cut(name)} is not read here: {nearest(name, valid)}")


def variable(options: Options, *names: str) -> int | None:
    """The number that the first of these --var gives, or None."""
    for name in names:
        if name in options.variables:
            text = options.variables[name]
            if not (text.isascii() and text.isdigit() and len(text) < 20 and 0 < int(text) <= LARGEST_WORLD):
                raise InputError(f"--var {name}={cut(text)}: it should be a whole number above 0")
            return int(text)
    return None


def world_size(options: Options) -> int | None:
    """The number of ranks that --var says, or None."""
    return variable(options, *WORLD)


def spread(keys: Keys, options: Options, strategy: dict[str, Any], found: int | None = None, said: str = "") -> None:
    """Set dp to what tp, cp and pp leave of the ranks: those of --var world=N, those that the files let one find (`said` by what), or one
    node of 8, or the fewest from there on that hold whole replicas and whole sets of experts."""
    degree = {name: int(strategy.get(name, 1)) for name in ("tp", "cp", "pp", "ep")}
    each = degree["tp"] * degree["cp"] * degree["pp"]
    named = world_size(options)
    world = named or found
    if world is None:
        experts = degree["ep"] * int(strategy.get("etp", degree["tp"])) * degree["pp"]
        whole = lcm(each, experts) if min(each, experts) > 0 else each
        world = max(1, -(-NODE // whole)) * whole
        row = Entry("world", "(default)", "derived", "dp", f"{world} ranks, since the files do not say; --var world=N does")
    elif named is not None:
        row = Entry("world", str(world), "mapped", "dp")
    else:
        row = Entry("world", "(default)", "derived", "dp", f"{world} ranks, of {said}")
    if world % each:
        raise InputError(f"{world} ranks are no multiple of tp*cp*pp={each}, the ranks of a replica; --var world=N says how many there are")
    strategy["dp"] = world // each
    keys.rows["world"] = row
