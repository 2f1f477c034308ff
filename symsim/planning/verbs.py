"""`symsim.next_changes` and `symsim.sizing`: what `symsim eval --next` and `symsim plan` of several sizes answer, in Python."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from symsim.api.python import model_of, path_of, strategy_of
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.inputs.architecture import Architecture
from symsim.inputs.run import RUN
from symsim.inputs.strategy import Strategy
from symsim.planning import sizing as sizes_of
from symsim.planning.command import need_of
from symsim.planning.knobs import MOST, Next, next_knobs
from symsim.planning.plan import flat, plan
from symsim.planning.sizing import Need, Size, sized
from symsim.program.base import read_base

if TYPE_CHECKING:
    from symsim.report.figure import Figure


@dataclass(frozen=True, repr=False)
class Sizing:
    """The best of every size, in the order asked; `smallest`, `cheapest`, `fastest` and `most_tokens` of those that do what is needed, else None.
    refused: a sentence for each size that nothing can run on."""

    sizes: Sequence[Size]
    need: Need
    refused: Sequence[str] = ()

    @property
    def smallest(self) -> Size | None:
        return sizes_of.smallest(self.sizes)

    @property
    def cheapest(self) -> Size | None:
        return sizes_of.cheapest(self.sizes)

    @property
    def fastest(self) -> Size | None:
        return sizes_of.fastest(self.sizes)

    @property
    def most_tokens(self) -> Size | None:
        return sizes_of.most_tokens(self.sizes)

    def __repr__(self) -> str:
        """As `symsim plan` prints it."""
        from symsim.planning.sizing_text import sizing_text

        return "\n".join([sizing_text(self.sizes, self.need).rstrip("\n"), *self.refused])

    def to_json(self) -> dict[str, Any]:
        """The object of `symsim plan --world A:B:C --json`."""
        return sizes_of.sizes_json(self.sizes, self.need)

    def to_pandas(self) -> Any:
        """A DataFrame with a row a size: system, world, the numbers of its best strategy and of the run. InputError without pandas."""
        from symsim.api.frames import frame_of

        return frame_of([_flat(size) for size in self.sizes])

    def plot(self) -> "Figure":
        """Tokens a second on an accelerator over their number, a line a system. InputError where nothing fits."""
        from symsim.planning.sizing_text import curve
        from symsim.report.figure import Figure

        if not any(size.plan.fits for size in self.sizes):
            raise InputError("plot(): nothing fits on any of these sizes, so there is nothing to draw")
        return Figure(f"{self.sizes[0].plan.asked.model.name}: the best of each size", *curve(self.sizes))

    def _repr_html_(self) -> str:
        from symsim.planning.sizing_text import sizing_shown
        from symsim.report.notebook import html

        return html(sizing_shown(self.sizes, self.need))

    def _repr_mimebundle_(self, include: Collection[str] | None = None, exclude: Collection[str] | None = None) -> dict[str, str]:
        from symsim.report.notebook import bundle

        return bundle(self, include, exclude)


def next_changes(
    model: Architecture | Job | str | os.PathLike[str] | Mapping[str, Any],
    strategy: Strategy | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    system: str | os.PathLike[str] | None = None,
    *,
    most: int = MOST,
    overrides: Mapping[str, Any] | None = None,
) -> Next:
    """The changes of one option or size that shorten a step the most, on the same ranks with the same batch; seconds and bytes before and after.

    model, strategy, system, overrides: as of `derive`. most: changes given, no two of one knob. InputError without a system, and as `derive`.

    >>> found = next_changes("smollm2-360m", "dp=8,zero=1,micro_batch_size=1,global_batch_size=32", "h100-sxm", most=1)
    >>> found.changes[0].text, found.changes[0].after < found.changes[0].before
    ('micro_batch_size=4', True)
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InputError(f"most={most!r}: a whole number of changes above 0 is needed")
    machine = path_of(system, "the system") if system is not None else None
    return next_knobs(read_base(model_of(model), strategy_of(strategy), machine, overrides or {}), most)


def sizing(
    model: Any,
    system: str | Sequence[str],
    *,
    world: int | Sequence[int],
    tokens: float | str | None = None,
    days: float | None = None,
    budget: float | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    **asked: Any,
) -> Sizing:
    """The best strategy of every number of accelerators, of one system or of several, and the run that each makes.

    tokens: of a run, a number or text such as '15T'; days and budget (US dollars): what it may take. overrides: what --set takes, numbers of the
    run (mtbf, B_store, ..) among them. asked: what else `symsim.plan` takes (global_batch_size, seq_length, goal, framework, fix, ..).
    InputError as `symsim.plan`, and for a budget where a system has no price.

    >>> fixed = "cp=1,pp=1,vpp=1,recompute=none,overlap_grad_reduce=true"
    >>> found = sizing("smollm2-360m", "h100-sxm", world=[4, 8], global_batch_size=16, fix=fixed, tokens="10B", days=1)
    >>> found.smallest.world, [size.does for size in found.sizes]
    (4, [True, True])
    """
    sizes = list(world) if isinstance(world, Iterable) and not isinstance(world, str) else [world]
    systems = [system] if isinstance(system, str) else list(system)
    if not sizes or not systems:
        raise InputError("sizing() needs a number of accelerators and a system: world=[64, 128] and 'h100-sxm'")
    run = {name: value for name, value in (overrides or {}).items() if name in RUN}
    length, within, cost = (None if given is None else str(given) for given in (tokens, days, budget))
    need = need_of(length, within, cost, run)
    rest = {name: value for name, value in (overrides or {}).items() if name not in RUN}
    given = {"overrides": rest, "top": 1, **asked}
    plans, refused = sizes_of.of_each([(ranks, partial(plan, model, name, world=ranks, **given)) for name in systems for ranks in sizes])
    return Sizing([sized(found, need) for found in plans], need, refused)


def _flat(size: Size) -> dict[str, Any]:
    run = {f"run.{name}": size.run[name] for name in ("days", "tokens", "goodput", "cost") if name in size.run} if size.run is not None else {}
    return {"system": size.system, "world": size.world, "fits": size.plan.fits, "does": size.does, **flat(size.plan.best[0]), **run}
