"""What a sweep reports, by name: the names of `symsim eval --json`, what stands behind each, its unit and which end is best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from symsim.errors import InputError, nearest

Kind = Literal["integer", "number", "boolean", "text"]


@dataclass(frozen=True)
class Entry:
    """symbol: the definition behind it. over: of the whole step, the largest over stages, or of the stage with the largest peak.
    timed: there is one on a system; of_run: where a run's length is given."""

    symbol: str
    unit: str
    kind: Kind
    meaning: str
    over: Literal["step", "stages", "fullest"] = "step"
    largest_first: bool = False
    timed: bool = False
    of_run: bool = False

    @property
    def is_cost(self) -> bool:
        """Whether less of it is better."""
        return not self.largest_first and self.unit in ("s", "d", "h", "kg", "byte", "USD", "MWh") and self.symbol != "memory"


QUANTITIES: dict[str, Entry] = {
    "time.step": Entry("t_step", "s", "number", "one step", timed=True),
    "time.step_low": Entry("t_step_low", "s", "number", "lower end of the interval of a step", timed=True),
    "time.step_high": Entry("t_step_high", "s", "number", "upper end of the interval of a step", timed=True),
    "time.compute": Entry("t_compute", "s", "number", "kernels of the slowest stage", timed=True),
    "time.bubble": Entry("t_bubble", "s", "number", "time the slowest stage waits for others", timed=True),
    "time.exposed": Entry("exposed", "s", "number", "messages that nothing hides", timed=True),
    "time.optimizer": Entry("t_optimizer", "s", "number", "the optimizer", timed=True),
    "tokens_per_second": Entry("tokens_per_second", "1/s", "number", "tokens of all ranks a second", largest_first=True, timed=True),
    "mfu": Entry("mfu", "1", "number", "model FLOPs utilisation", largest_first=True, timed=True),
    "hfu": Entry("hfu", "1", "number", "hardware FLOPs utilisation", largest_first=True, timed=True),
    "cost_per_trillion_tokens": Entry("cost_per_trillion_tokens", "USD", "number", "US dollars for 10^12 tokens", timed=True),
    "energy_per_trillion_tokens": Entry("energy_per_trillion_tokens", "MWh", "number", "energy of the accelerators for 10^12 tokens", timed=True),
    "memory.peak": Entry("M_stage_peak", "byte", "integer", "peak memory of the fullest rank", "stages"),
    "memory.weights": Entry("M_stage_weights", "byte", "integer", "parameters of the fullest rank", "fullest"),
    "memory.gradients": Entry("M_stage_gradients", "byte", "integer", "gradients of the fullest rank", "fullest"),
    "memory.optimizer": Entry("M_stage_optimizer", "byte", "integer", "optimizer states of the fullest rank", "fullest"),
    "memory.activations": Entry("M_stage_activations", "byte", "integer", "saved activations of the fullest rank", "fullest"),
    "memory.transient": Entry("M_stage_transient", "byte", "integer", "of the peak, what is neither kept nor saved", "fullest"),
    "memory.reserve": Entry("M_reserve", "byte", "number", "kept free beside the peak: CUDA, NCCL's buffers, the allocator's fragments"),
    "memory.capacity": Entry("memory", "byte", "integer", "memory of one accelerator", timed=True),
    "params.total": Entry("N", "1", "integer", "parameters"),
    "params.active": Entry("N_active", "1", "integer", "parameters that one token uses"),
    "params.trained": Entry("N_trained", "1", "integer", "parameters that are trained"),
    "params.per_rank": Entry("P_stage", "1", "integer", "parameters of the rank that holds the most", "stages"),
    "flops.forward": Entry("F", "FLOP", "number", "forward of one micro-batch, the whole model"),
    "flops.backward": Entry("G", "FLOP", "number", "backward of one micro-batch, the whole model"),
    "flops.recompute": Entry("R", "FLOP", "number", "computed again in backward, one micro-batch"),
    "activations.saved_per_microbatch": Entry("A_stage", "byte", "integer", "saved by the rank that saves the most", "stages"),
    "world": Entry("world", "1", "integer", "ranks"),
    "run.tokens": Entry("tokens_run", "1", "number", "tokens of the run", largest_first=True, timed=True, of_run=True),
    "run.steps": Entry("steps_run", "1", "number", "steps of the run", largest_first=True, timed=True, of_run=True),
    "run.days": Entry("days_run", "d", "number", "days that the run takes", timed=True, of_run=True),
    "run.accelerator_hours": Entry("hours_run", "h", "number", "hours of all accelerators", timed=True, of_run=True),
    "run.cost": Entry("cost_run", "USD", "number", "US dollars", timed=True, of_run=True),
    "run.energy": Entry("energy_run", "MWh", "number", "energy of the site", timed=True, of_run=True),
    "run.carbon": Entry("carbon_run", "kg", "number", "CO2 of the grid", timed=True, of_run=True),
    "run.goodput": Entry("goodput_run", "1", "number", "share of the time spent on steps that count", largest_first=True, timed=True, of_run=True),
    "run.failures": Entry("failures_run", "1", "number", "failures to be expected", timed=True, of_run=True),
    "run.time_between_failures": Entry("between_run", "s", "number", "mean time between failures", largest_first=True, timed=True, of_run=True),
    "run.lost_per_failure": Entry("lost_run", "s", "number", "what a failure costs", timed=True, of_run=True),
    "run.checkpoint": Entry("checkpoint_run", "byte", "integer", "a checkpoint, each weight and state once", timed=True, of_run=True),
    "run.checkpoint_wait": Entry("blocked_run", "s", "number", "what training waits for a checkpoint", timed=True, of_run=True),
    "run.checkpoint_interval": Entry("interval_run", "s", "number", "training between two checkpoints", timed=True, of_run=True),
    "run.checkpoints": Entry("saves_run", "1", "number", "checkpoints of the run", timed=True, of_run=True),
}
TIMED_COLUMNS = ("world", "time.step", "tokens_per_second", "mfu", "time.compute", "time.bubble", "time.exposed", "time.optimizer", "memory.peak")
COLUMNS = ("world", "memory.peak", "memory.weights", "memory.gradients", "memory.optimizer", "memory.activations", "params.per_rank", "flops.forward")
EXPOSED = "time.exposed."


def default_columns(timed: bool) -> tuple[str, ...]:
    return TIMED_COLUMNS if timed else COLUMNS


def entry_of(name: str) -> Entry | None:
    """The quantity of this name, or the first that is behind this symbol."""
    return next((entry for told, entry in QUANTITIES.items() if name in (told, entry.symbol)), None)


# how a run's length is given; and what a system may leave out, by the unit of what follows from it
A_RUN = "--set tokens=15T, steps or days says how long it is"
_POWER = "a system with a power: --set accelerator.power='700 W' gives one"
NEEDED = {"USD": "a system with a price: --set accelerator.price='2 USD/h' gives one", "MWh": _POWER, "kg": _POWER}


def refuse_unknown(name: str, known: Sequence[str], where: str, *, timed: bool = False, run: bool = False) -> InputError:
    """Why a name is no quantity: the nearest of those that people mean, then of all. timed: on a system; run: of a run."""
    entry = entry_of(name)
    if entry is not None and entry.of_run and timed and not run:
        return InputError(f"{where}: {name} needs a run: {A_RUN}")
    if entry is not None and entry.timed:
        lacks = NEEDED.get(entry.unit, "more than the system says") if timed else "a system: give one with -y"
        return InputError(f"{where}: {name} needs {lacks}")
    for choices in ([*QUANTITIES], [*QUANTITIES, *known]):
        hint = nearest(name, choices)
        if hint.startswith("did you mean"):
            return InputError(f"{where}: there is no quantity '{name}': {hint}")
    return InputError(f"{where}: there is no quantity '{name}'; 'symsim list quantities' has them")
