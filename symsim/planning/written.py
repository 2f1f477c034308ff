"""What the file that starts the best of a plan does not say, and what it takes as it is read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.exporters.export import Asked as Exported
from symsim.exporters.export import Unsaid, read_back
from symsim.exporters.registry import TARGETS
from symsim.inputs.settings import settings_of

if TYPE_CHECKING:
    from symsim.planning.plan import Choice


@dataclass(frozen=True)
class Written:
    """unsaid: choices that come back otherwise when the file is read. result: what the file takes on the same system; None where nothing is lost,
    and where what is written cannot run."""

    unsaid: Sequence[Unsaid] = ()
    result: Result | None = None

    def to_json(self) -> dict[str, Any]:
        """Seconds of a step and bytes of the peak, as the file has them."""
        said = {one.said: one.instead for one in self.unsaid}
        numbers = {} if self.result is None else {n: float(self.result.value(n)) for n in ("time.step", "memory.peak")}
        return {"cannot_say": said, **numbers}


def to_be_written(best: "Choice") -> Exported:
    """A strategy of a plan, of which what moves nothing is not lost where a file does not say it."""
    found = best.result
    chosen = found.strategy.model_dump(exclude_unset=True, exclude_defaults=True).keys()
    return Exported(found.architecture, found.strategy, found.system, found.assumptions, [*best.idle, *(chosen - {*best.acting, "dp"})])


def written(best: "Choice") -> Written:
    """Of a strategy of a plan, written by `symsim export` for the plan's framework. Nothing where its file is a part of a job only."""
    if not TARGETS[best.asked.framework.target].has_model:
        return Written()
    found, asked = best.result, best.asked
    try:
        unsaid, job = read_back(asked.framework.target, to_be_written(best))
    except InputError:
        # which a plan says as such
        return Written()
    given = settings_of(asked.overrides)
    # what is assumed by --set is how the user counts, and no file's
    unsaid = [one for one in unsaid if one.name not in {f"assume.{name}" for name in given.assumptions}]
    if not unsaid:
        return Written()
    try:
        model = job.architecture if job.architecture is not None else found.architecture
        result = derive(model, job.placed(), {**job.assumptions, **given.assumptions}, found.overrides, found.system)
    except InputError:
        return Written(unsaid)
    return Written(unsaid, result)
