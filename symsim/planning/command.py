"""`symsim plan` and `symsim diff`: from the texts of the command line to what they print."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from symsim.algebra.quantity import BYTE
from symsim.api.given import Given, as_given
from symsim.errors import InputError, cut
from symsim.exporters.export import Asked, exported
from symsim.exporters.export import files as files_of
from symsim.grid.answer import Progress
from symsim.grid.axes import Axis, parse_axis
from symsim.grid.command import shown_progress
from symsim.grid.names import is_whole
from symsim.inputs.models import LoadedModel, load_model
from symsim.inputs.run import read_run_number
from symsim.inputs.settings import settings_of, text_of
from symsim.inputs.strategies import is_file, read_strategy
from symsim.inputs.strategy import Strategy
from symsim.planning.completed import Completed, completed
from symsim.planning.difference import difference, difference_text
from symsim.planning.plan import Plan, plan, rows_of_job, trained_by
from symsim.planning.sizing import Need, Size, chosen, of_each, sized, sizes_json
from symsim.planning.sizing_text import curve, sizing_text
from symsim.planning.space import Asked as Planned
from symsim.planning.space import options_beside, outside
from symsim.planning.text import plan_text
from symsim.planning.written import to_be_written
from symsim.report.amounts import human
from symsim.report.apart import apart
from symsim.report.columns import wrapped
from symsim.report.drawn import check_picture, write_picture

_MOST_SIZES = 32

Write = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What `symsim plan` was asked, as text where it is to be read."""

    model: str
    systems: tuple[str, ...]
    world: str | None
    batch: int | None
    tokens: str | None
    seq_length: int | None
    goal: str
    framework: str
    fix: str | None
    allow: tuple[str, ...]
    share: float
    top: int
    overrides: Mapping[str, str]
    need: Need
    plot: Path | None = None


def need_of(tokens: str | None, days: str | None, budget: str | None, numbers: Mapping[str, str]) -> Need:
    """What a run is to be, from texts as '15T', '30' and '2M'. InputError for what does not read."""
    read = {"tokens": tokens, "days": days, "budget": budget}
    found = {}
    for name, text in read.items():
        if text is not None:
            try:
                found[name] = float(read_run_number("days" if name == "days" else "tokens", text))
            except InputError as error:
                said = str(error).replace("--set tokens=" if name == "budget" else f"--set {name}=", f"--{name} ")
                raise InputError(said.replace("as 15T", "as 2M") if name == "budget" else said) from None
    if numbers and not found:
        raise InputError(f"--set {min(numbers)} is of a run, and nothing says how long it is: give --tokens, --days or --budget")
    return Need(numbers=numbers, **found)


def run(request: Request, why_not: str | None, written: tuple[str, Path] | None, as_json: bool, write: Write, say: Write) -> None:
    """Print a plan; why_not: a strategy to set beside its best; written: a system to write it for, and where."""
    sizes, systems = _asked_sizes(request, why_not, written), request.systems or (None,)
    sizing = len(sizes) * len(systems) > 1 or request.need.asks or request.plot is not None
    loaded = load_model(request.model)
    if why_not is not None:
        _read_beside(why_not)
    if written is not None:
        # what cannot be written is said before it is searched for
        files_of(written[0], Asked(loaded.architecture, Strategy(), suffix=written[1].suffix), written[1])
    target = f"{written[0]} {written[1].suffix}" if written is not None else ""
    with shown_progress() as progress:
        made = partial(_planned, loaded, request, top=1 if sizing else request.top, target=target, progress=progress)
        plans, refused = of_each([(world, partial(made, system, world)) for system in systems for world in sizes])
    for why in refused:
        say(why)
    found = plans[0]
    if sizing:
        runs = [sized(p, request.need) for p in plans]
        _write_sizes(runs, request, as_json, write, say)
    else:
        write(_why_not(found, why_not, as_json) if why_not is not None else _answer(found, as_json))
    if written is not None:
        found = _chosen(runs, request.need, written).plan if sizing else found
        _export(found, written, say)
    if loaded.note:
        say(loaded.note)
    if loaded.strategy is not None:
        _say_of_job(request, loaded, say)
    if found.fits and (request.overrides or request.fix):
        _say_without_effect(request, found, say)


def _asked_sizes(request: Request, why_not: str | None, written: tuple[str, Path] | None) -> list[int]:
    """The numbers of accelerators that are asked for. InputError for what cannot be asked of them."""
    if request.world is None:
        raise InputError("a plan is for a number of accelerators: give --world")
    if not 1 <= request.top <= 100:
        raise InputError(f"--top {request.top}: a number of strategies from 1 to 100 is needed")
    sizes = _sizes(request.world)
    if request.plot is not None:
        check_picture(request.plot)
    several = len(sizes) * max(1, len(request.systems)) > 1
    if why_not is not None and (several or request.need.asks or request.plot is not None):
        raise InputError("--why-not is of one number of accelerators: give one --world and one -y, without a run")
    if written is not None and several and not request.need.asks:
        choice = "give a run (--tokens, --days or --budget), or one --world and one -y"
        raise InputError(f"--export writes one strategy, and nothing chooses among sizes: {choice}")
    twice = next((s for k, s in enumerate(request.systems) if s in request.systems[:k]), None)
    if twice is not None:
        raise InputError(f"-y {twice} is given twice")
    return sizes


def _answer(found: Plan, as_json: bool) -> str:
    if as_json:
        return json.dumps(found.to_json(), indent=2, allow_nan=False) + "\n"
    if not found.fits:
        return plan_text(found)
    with apart(lambda: found.changes) as changes:
        return plan_text(found, changes)


def _say_of_job(request: Request, loaded: LoadedModel, say: Write) -> None:
    """What of a job's own strategy a plan keeps."""
    rows = rows_of_job(loaded)
    unsaid = {"seq_length": request.seq_length is None, "global_batch_size": request.batch is None and request.tokens is None}
    own = {**trained_by(loaded), **{name: value for name, value in rows.items() if unsaid[name]}}
    kept = ",".join(f"{name}={text_of(value)}" for name, value in own.items())
    say(f"a plan looks for a strategy of its own: of that in {request.model} it keeps {kept or 'nothing'}, and --fix keeps more")


def _export(found: Plan, written: tuple[str, Path], say: Write) -> None:
    """Write the best of a plan for a trainer. InputError where nothing fits."""
    kind, place = written
    if not found.fits:
        raise InputError(f"--export {kind} {place}: nothing fits, so nothing is written")
    for sentence in exported(kind, to_be_written(found.best[0]), place):
        say(sentence)


def _chosen(sizes: Sequence[Size], need: Need, written: tuple[str, Path]) -> Size:
    """The one size that answers. InputError where none does, or several."""
    kind, place = written
    found = chosen(sizes, need)
    if not found:
        raise InputError(f"--export {kind} {place}: none of these sizes does it, so nothing is written")
    first, *others = found.values()
    if any(other is not first for other in others):
        named = ", ".join(f"the {what} is {size.world:,} of {size.system}" for what, size in found.items())
        raise InputError(f"--export {kind} {place}: {named}; nothing is written: one --world and one -y say which")
    return first


def _say_without_effect(request: Request, found: Plan, say: Write) -> None:
    """What was given and moves nothing of the best strategy."""
    fixed = {*read_strategy(request.fix)[0].model_fields_set, *settings_of(request.overrides).strategy}
    given = found.settings(found.best[0])
    settings = [f"{name}={text}" for name, text in given.items()]
    made = as_given(request.model, found.best[0].whole, found.asked.system, settings)
    own = given.keys() - request.overrides.keys()
    chosen = {*own, *found.best[0].options.keys()} - fixed
    for name, sentence in made.idle.items():
        if name not in chosen:
            say(f"the best: {sentence}")


def _write_sizes(sizes: Sequence[Size], request: Request, as_json: bool, write: Write, say: Write) -> None:
    text = sizing_text(sizes, request.need)
    told = sizes_json(sizes, request.need)
    write(json.dumps(told, indent=2, allow_nan=False) + "\n" if as_json else text)
    if request.plot is None:
        return
    if not any(s.plan.fits for s in sizes):
        raise InputError(f"--plot {request.plot}: nothing fits on any of these sizes, so there is nothing to draw")
    write_picture(request.plot, curve(sizes)[0], f"{sizes[0].plan.asked.model.name}: the best of each size", text.splitlines())
    say(f"wrote {request.plot}")


def _planned(loaded: LoadedModel, request: Request, system: str | None, world: int, top: int, target: str, progress: Progress) -> Plan:
    return plan(
        loaded,
        system,
        world=world,
        global_batch_size=request.batch,
        tokens_per_step=request.tokens,
        seq_length=request.seq_length,
        goal=request.goal,
        framework=request.framework,
        fix=request.fix,
        allow=request.allow,
        fits_with=request.share,
        top=top,
        overrides=request.overrides,
        target=target,
        progress=progress,
    )


def _sizes(text: str) -> list[int]:
    """128; 16,64; 16:4096:*2, as axes are written."""
    try:
        axis = parse_axis(f"world={text}")
        values = axis.columns[0] if isinstance(axis, Axis) else ()
    except InputError as error:
        raise InputError(f"--world {cut(text)}: {error}") from None
    if not values or not all(is_whole(v) for v in values):
        raise InputError(f"--world {cut(text)}: whole numbers above 0 are needed, such as 128, or 16:4096:*2")
    if len(values) > _MOST_SIZES:
        raise InputError(f"--world {cut(text)}: {len(values)} sizes are too many; at most {_MOST_SIZES} are planned one after the other")
    return [int(v) for v in values]


def _why_not(found: Plan, text: str, as_json: bool) -> str:
    """A strategy beside the best: the rule that refuses it, or where it is slower."""
    best = found.best[0]
    _read_beside(text, found.asked)
    try:
        made = completed(found, text) if "=" in text and not is_file(text) else None
        other = made.choice.result if made is not None else found.at(text)
    except InputError as error:
        return json.dumps({"refused": str(error)}) + "\n" if as_json else f"It cannot run: {error}\n"
    apart, beyond = difference(best.result, other), outside(found.asked, other.strategy)
    if as_json:
        own = {"strategy": made.choice.text, "filled": made.filled} if made is not None else {}
        return json.dumps({**apart.to_json(), "outside": beyond, **own}, allow_nan=False) + "\n"
    lines = [] if found.fits else ["Nothing of the space fits; best is what needs the least memory."]
    lines += [f"best: {found.line(best)}"]
    if made is not None and made.choice.options == best.options:
        return "\n".join([*lines, "It is the best: nothing that has what is said is better."]) + "\n"
    if made is not None:
        lines += [f"this: {found.line(made.choice)}", wrapped(_filled(found, made))]
    lacks = other.value("memory.peak") + other.value("memory.reserve") - other.value("memory.capacity") * found.share
    lines += [f"It does not fit: {human(int(lacks), BYTE)} too much."] if lacks > 0 else []
    lines += [wrapped(f"It is not in the space of the plan: {', '.join(beyond)}.")] if beyond else []
    return "\n".join(lines) + "\n\n" + difference_text(apart, ("best", "this"))


def _filled(found: Plan, made: Completed) -> str:
    """How what was not said of a strategy beside the best was chosen."""
    which = f"this is the best by {found.goal}" if made.fits else "none fits, and this needs the least memory"
    chosen = ", ".join(made.filled) or "nothing besides the defaults"
    return f"What is not said is chosen: of the {made.configurations:,} strategies that have what is said {which}, with {chosen}."


def _read_beside(text: str, asked: Planned | None = None) -> None:
    """InputError for a strategy that does not read, or says nothing; with a plan, also for other ranks or another batch."""
    if not text.strip():
        raise InputError("--why-not says no option: give some, such as tp=4,pp=2, or a file")
    try:
        options_beside(asked, text) if asked is not None else read_strategy(text)
    except InputError as error:
        raise InputError(f"--why-not {error}") from None


def run_diff(
    models: Sequence[str], strategies: Sequence[str], systems: Sequence[str], settings: Sequence[str], as_json: bool, write: Write, say: Write
) -> None:
    """Print two evaluations side by side. InputError where nothing is given twice, or anything three times."""
    for what, given in (("MODEL", models), ("-s", strategies), ("-y", systems)):
        if len(given) > 2:
            raise InputError(f"{what} is given {len(given)} times; two are set side by side")
    if max(len(models), len(strategies), len(systems)) < 2:
        raise InputError("there is nothing to set side by side: give two models, or -s or -y twice")

    def made(which: int) -> Given:
        def of(twice: Sequence[str]) -> str | None:
            return twice[min(which, len(twice) - 1)] if twice else None

        found = as_given(models[min(which, len(models) - 1)], of(strategies), of(systems), settings)
        if found.result.system is None:
            raise InputError("steps are set side by side on a system: give one with -y")
        return found

    one, other = made(0), made(1)
    found = difference(one.result, other.result)
    write(json.dumps(found.to_json(), allow_nan=False) + "\n" if as_json else difference_text(found, ("first", "second")))
    first, second = ([*side.notes, *side.idle.values()] for side in (one, other))
    for note in first:
        say(note if note in second else f"first: {note}")
    for note in second:
        if note not in first:
            say(f"second: {note}")
