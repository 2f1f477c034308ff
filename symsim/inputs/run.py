"""What a run of many steps stands on besides its step: how long it is, what fails and how often, where checkpoints go, what power costs.

A row is a number that `--set NAME=VALUE` takes. It has a default with its source, or says by being given what the run has (an
evaluation every so many steps). There is a run where one of `tokens`, `steps` and `days` is given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from symsim.algebra.expr import Number
from symsim.errors import InputError, cut, nearest
from symsim.inputs.known import UNITS
from symsim.inputs.strategy import Strategy

LENGTHS = ("tokens", "steps", "days")
RAMP = "rampup_batch_size"
RAMP_PARTS = ("ramp_start", "ramp_increment", "ramp_samples")
RAMP_SHARE = "h_ramp"
_MOST_INCREMENTS = 10**5
_TIMES = {"s": 1, "min": 60, "h": 3600, "d": 86400, "days": 86400}
_KINDS: dict[str, Mapping[str, Fraction]] = {
    "time": {**{unit: size for unit, (kind, size) in UNITS.items() if kind == "time"}, **{u: Fraction(n) for u, n in _TIMES.items()}},
    "bandwidth": {unit: size for unit, (kind, size) in UNITS.items() if kind == "bandwidth"},
    "count": {suffix: Fraction(10) ** power for suffix, power in (("k", 3), ("K", 3), ("M", 6), ("B", 9), ("G", 9), ("T", 12), ("P", 15))},
    "share": {"%": Fraction(1, 100)},
    "carbon": {"kg/kWh": Fraction(1), "g/kWh": Fraction(1, 1000)},
    "whole": {},
    "plain": {},
}
_NUMBER = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,2})?)\s*(\S*)")


@dataclass(frozen=True)
class RunNumber:
    """default: as text, empty where there is none. kind: a row of units. example: as a user may write it."""

    default: str
    kind: str
    example: str
    source: str
    least: Number = 0
    most: Number = 10**18

    @property
    def whole(self) -> bool:
        return self.kind in ("whole", "count")


# symsim/algebra/vocabulary.py has what each means
RUN: dict[str, RunNumber] = {
    "tokens": RunNumber("", "count", "15T", "", 1),
    "steps": RunNumber("", "count", "100000", "", 1, 10**15),
    "days": RunNumber("", "plain", "30", "", Fraction(1, 10**6), 10**6),
    "jitter": RunNumber("0", "share", "2%", "0: the steps that systems are fitted to hold what their ranks waited for one another", 0, 10),
    "mtbf": RunNumber(
        "50676 h",
        "time",
        "50000 h",
        "419 unexpected interruptions of 16,384 H100 in 54 days (Llama 3, arXiv:2407.21783, sec. 3.3.4)",
        Fraction(1, 10**6),
    ),
    "t_restart": RunNumber(
        "10 min", "time", "10 min", "less than ten minutes to detect and to diagnose, on average (MegaScale, arXiv:2402.15627, sec. 6.3)"
    ),
    "B_save": RunNumber(
        "122 MB/s", "bandwidth", "122 MB/s", "2 TB/s sustained for 16,384 accelerators (Llama 3, arXiv:2407.21783, sec. 3.3.1)", 1, 10**15
    ),
    "B_store": RunNumber("", "bandwidth", "20 GB/s", "", 1, 10**18),
    "async_save": RunNumber("0", "whole", "1", "0: Megatron-Core's default (--async-save)", 0, 1),
    "save_interval": RunNumber("", "whole", "500", "", 1, 10**12),
    "t_save": RunNumber("", "time", "30 min", "", Fraction(1, 1000)),
    "eval_interval": RunNumber("", "whole", "1000", "", 1, 10**12),
    "eval_iters": RunNumber("100", "whole", "100", "Megatron-LM's default (--eval-iters)", 0, 10**9),
    **{part: RunNumber("", "whole", "32", "", least, 10**12) for part, least in zip(RAMP_PARTS, (1, 1, 0))},
    "k_node": RunNumber(
        "1.38", "plain", "1.38", "nodes of eight H100 draw 76 % of their rated 10.2 kW in training (arXiv:2506.14551), over 8 x 700 W", 0, 100
    ),
    "pue": RunNumber("1.1", "plain", "1.1", "Google's fleet, 1.10 (Google Environmental Report 2023)", 1, 10),
    "carbon": RunNumber("0.473 kg/kWh", "carbon", "0.4 kg/kWh", "the world's grids in 2024 (Ember, Global Electricity Review 2025)", 0, 100),
}


def read_run_number(name: str, given: Any, said: str = "--set ") -> Fraction:
    """A number of a run from text such as '10 min', '15T' or '2%', or in base units (second, byte/s). InputError for what it cannot be,
    which begins as `said`."""
    row = RUN[name]
    units = _KINDS[row.kind]
    if isinstance(given, Fraction):
        value = given
    else:
        found = _NUMBER.fullmatch(str(given).strip())
        unit = found[2] if found else ""
        if found is None or unit and unit not in units:
            hint = f": {nearest(unit, list(units))}" if found is not None and units else ""
            raise InputError(f"{said}{name}={cut(str(given), 40)} is not read; it is given as {row.example}{hint}")
        value = Fraction(found[1]) * (units[unit] if unit else 1)
    if row.whole and value.denominator != 1:
        raise InputError(f"{said}{name}={cut(str(given), 40)}: a whole number is needed, such as {row.example}")
    if not row.least <= value <= row.most:
        least = f"{float(row.least):g}" if row.least else "0"
        raise InputError(f"{said}{name}={cut(str(given), 40)}: it lies between {least} and {float(row.most):g}, such as {row.example}")
    return value


def read_ramp(text: Any) -> dict[str, Fraction]:
    """START INCREMENT SAMPLES of a batch that grows, as Megatron-LM's --rampup-batch-size has them."""
    parts = re.split(r"[\s,+]+", str(text).strip())
    if len(parts) != len(RAMP_PARTS):
        raise InputError(f"--set {RAMP}={cut(str(text), 40)}: three numbers are needed: first batch, increment, samples, such as '32 32 65536'")
    return {name: read_run_number(name, part) for name, part in zip(RAMP_PARTS, parts)}


def asks_run(given: Mapping[str, Any]) -> bool:
    return not RUN.keys().isdisjoint(given)


def check_run(given: Mapping[str, Any]) -> None:
    """InputError where numbers of a run contradict one another, or none says how long it is."""
    lengths = [name for name in LENGTHS if name in given]
    if not lengths:
        first = next(name for name in RUN if name in given)
        raise InputError(f"--set {first} is of a run, and nothing says how long it is: give tokens, steps or days")
    if "eval_iters" in given and "eval_interval" not in given:
        raise InputError("--set eval_iters says how many batches an evaluation has, and nothing says when there is one: give eval_interval")
    for group in (LENGTHS, ("save_interval", "t_save"), ("B_store", "B_save")):
        both = [name for name in group if name in given]
        if len(both) > 1:
            raise InputError(f"--set {both[0]} and --set {both[1]} say the same of a run; give one of them")


def run_values(given: Mapping[str, Number], strategy: Strategy) -> dict[str, Number]:
    """Every number of a run, of those that are not given the defaults. InputError for a batch that cannot grow so."""
    found: dict[str, Number] = {name: read_run_number(name, row.default) for name, row in RUN.items() if row.default}
    found |= {name: given[name] for name in RUN if name in given}
    if RAMP_PARTS[0] in given:
        found[RAMP_SHARE] = _share_of_ramp(found, strategy)
    return {name: int(value) if value == int(value) else float(value) for name, value in found.items()}


def _share_of_ramp(given: Mapping[str, Number], strategy: Strategy) -> float:
    """The mean of 1/batch over the samples of the ramp: increments of equally many samples, as Megatron-LM's num_microbatches_calculator."""
    start, increment, samples = (int(given[name]) for name in RAMP_PARTS)
    each = strategy.micro_batch_size * strategy.dp
    batch = each * strategy.microbatches
    said = f"{RAMP}={start} {increment} {samples}"
    if start > batch or (batch - start) % increment:
        raise InputError(f"{said}: from {start} by {increment} the batch does not reach global_batch_size={batch}")
    for name, size in (("first batch", start), ("increment", increment)):
        if size % each:
            raise InputError(f"{said}: the {name} {size} is no multiple of micro_batch_size*dp={each}")
    number = (batch - start) // increment
    if number > _MOST_INCREMENTS:
        raise InputError(f"{said}: the batch grows in {number} increments; at most {_MOST_INCREMENTS} are read")
    tokens = given.get("tokens")
    if tokens is not None and samples * strategy.seq_length > tokens:
        raise InputError(f"{said}: the batch grows over {samples * strategy.seq_length} tokens, and the run has {int(tokens)}")
    share = math.fsum(1 / (start + k * increment) for k in range(number)) / number if number else 1 / batch
    if (steps := given.get("steps")) is not None and steps < samples * share:
        raise InputError(f"{said}: the batch grows over {math.ceil(samples * share)} steps, and the run has {int(steps)}")
    return share


def run_shape(given: Mapping[str, Any]) -> list[str]:
    """What decides a run's formulas: which of its numbers are given. InputError where a grid has none of them."""
    if RAMP_PARTS[0] in given:
        raise InputError(f"--set {RAMP}: a grid has no batch that grows; 'symsim run' does")
    return sorted(RUN.keys() & given.keys())


def in_use(given: Mapping[str, Any]) -> Iterator[tuple[str, RunNumber]]:
    """The numbers that a run stands on, with their rows: given, or by default where what they are of is there."""
    for name, row in RUN.items():
        if name in given or (row.default and (name != "eval_iters" or "eval_interval" in given) and (name != "B_save" or "B_store" not in given)):
            yield name, row
