"""The command line. Nothing heavy is imported until a command needs it."""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
from collections.abc import Sequence
from copy import copy
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from symsim.api import completing, listing, planned, showing
from symsim.api import formula as formulas
from symsim.api.arguments import Axes, By, Columns, Model, Pareto, ReportFile, Settings, Short, StrategyText, SystemName, pair
from symsim.api.asked import command as asking
from symsim.api.completing import kinds
from symsim.api.order import among, kind_first
from symsim.api.terminal import leave_output, print_out, say, say_all, say_replaced
from symsim.api.twice import check_once
from symsim.compat.registry import KINDS as SYSTEMS
from symsim.errors import InputError, in_doubles, nearest
from symsim.exporters.registry import TARGETS
from symsim.importers.registry import KINDS
from symsim.report import SUFFIXES

if TYPE_CHECKING:
    from symsim.api.result import Result

_BAD_INPUT = 2
_INTERRUPTED = 130
# objects that hold others, some 100 MB of them
_COLLECTED_AFTER = 400_000

# typer carries click inside it from some version on; its public exception leads to the right base class in all
_UsageError: Any = typer.BadParameter.__mro__[1]

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SYSTEMS = "{" + ",".join(SYSTEMS) + "}"


def _version(given: bool) -> None:
    if given:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("symsim")
        except PackageNotFoundError:
            number = "from a checkout that is not installed"
        print_out(f"symsim {number}\n")
        raise typer.Exit()


@app.callback()
def _root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False) -> None:
    """A symbolic cost-model compiler for training large language models."""


@app.command()
def derive(
    model: Model, strategy: StrategyText = None, system: SystemName = None, settings: Settings = None, output: ReportFile = None, short: Short = False
) -> None:
    """Derive the closed forms of a model's cost under a strategy, as a report."""
    from symsim.report import render_markdown, write_report

    result, notes = _result(model, strategy, system, settings)
    if output is None:
        print_out(render_markdown(result, short))
    else:
        notes += write_report(result, output, short)
    for note in notes:
        say(note)


@app.command("eval")
def evaluate(
    model: Model,
    strategy: StrategyText = None,
    system: SystemName = None,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    compat: Annotated[str | None, typer.Option("--compat", metavar=_SYSTEMS, help="As this system computes it.")] = None,
    further: Annotated[bool, typer.Option("--next", help="Also the changes of one option or size that gain most.")] = False,
) -> None:
    """Evaluate a model's cost under a strategy to numbers."""
    if compat is not None and further:
        raise InputError("--next changes options under symsim's own rules: give it without --compat")
    if compat is not None:
        from symsim.api.result import of
        from symsim.compat.verbs import evaluate_as
        from symsim.inputs.models import load_model

        result = of(evaluate_as(compat, model, strategy, system, settings or ()))
        notes = load_model(model).replaced(strategy)
    else:
        result, notes = _result(model, strategy, system, settings)
    from symsim.api.following import evaluation_text

    print_out(evaluation_text(result, (model, strategy, system, settings or ()) if further else None, as_json=as_json, hint=compat is None))
    for note in notes:
        say(note)


@app.command("run")
def whole_run(
    model: Model,
    strategy: StrategyText = None,
    system: SystemName = None,
    tokens: Annotated[str | None, typer.Option("--tokens", metavar="N", help="Tokens of the run, such as 15T.")] = None,
    steps: Annotated[str | None, typer.Option("--steps", metavar="N", help="Its steps instead.")] = None,
    days: Annotated[str | None, typer.Option("--days", metavar="D", help="Instead, what fits in so many days.")] = None,
    start: Annotated[str | None, typer.Option("--start", metavar="DATE", help="The day on which it begins, as 2026-12-01.")] = None,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    output: ReportFile = None,
) -> None:
    """Evaluate a whole run: days, cost, energy, checkpoints and failures."""
    from symsim.api.run import printed

    length = {name: value for name, value in (("tokens", tokens), ("steps", steps), ("days", days)) if value is not None}
    try:
        result, notes = _result(model, strategy, system, [*(settings or ()), *(f"{name}={value}" for name, value in length.items())])
    except InputError as error:
        raise InputError(reduce(lambda said, name: said.replace(f"--set {name}", f"--{name}"), length, str(error))) from None
    text, more = printed(result, start, output, as_json)
    print_out(text)
    for note in [*notes, *more]:
        say(note)


@app.command("compare")
def beside(
    model: Model,
    compat: Annotated[str, typer.Option("--compat", metavar=_SYSTEMS, help="The system whose numbers stand beside symsim's.")],
    strategy: StrategyText = None,
    system: SystemName = None,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Set another system's numbers beside symsim's, and list what they come from, largest first."""
    from symsim.compat.text import comparison_text
    from symsim.compat.verbs import compare_with

    made = compare_with(compat, model, strategy, system, settings or ())
    print_out(json.dumps(made.to_json()) + "\n" if as_json else comparison_text(made))
    say_replaced(model, strategy)


@app.command()
def sweep(
    model: Model,
    strategy: StrategyText = None,
    system: SystemName = None,
    settings: Settings = None,
    axes: Axes = None,
    where: Annotated[list[str] | None, typer.Option("--where", metavar="EXPR", help="Only points for which it is true; repeatable.")] = None,
    fits: Annotated[bool, typer.Option("--fits", help="Only points that fit the memory, with memory.reserve free beside them.")] = False,
    top: Annotated[int | None, typer.Option("--top", metavar="K", help="The K best points.")] = None,
    by: By = None,
    pareto: Pareto = None,
    columns: Columns = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to FILE (.parquet .csv).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a sweep to FILE that was stopped.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the points as one JSON array.")] = False,
    search: Annotated[str, typer.Option("--search", metavar="auto|scan|bounds", help="How the best are found; the answer is the same.")] = "auto",
    backend: Annotated[str, typer.Option("--backend", metavar="auto|numpy|c", help="What runs the kernels; the answer is the same.")] = "auto",
    engine: Annotated[str, typer.Option("--engine", metavar="local|dask", help="Who runs the blocks.")] = "local",
    scheduler: Annotated[str | None, typer.Option("--scheduler", metavar="ADDRESS", help="A Dask scheduler; else a local cluster.")] = None,
    workers: Annotated[int | None, typer.Option("--workers", metavar="N", help="Processes; as many as cores unless given.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw a curve, a heat map, or the front of --pareto (.svg .html).")
    ] = None,
    over: Annotated[str | None, typer.Option("--over", metavar="NAMES", help="The one or two axes that --plot draws over.")] = None,
    strategies: Annotated[bool, typer.Option("--strategies", help="Also what 'symsim eval' takes for each point.")] = False,
    export: Annotated[tuple[str, Path] | None, typer.Option("--export", metavar="KIND FILE", help="Write the best as a trainer's file.")] = None,
) -> None:
    """Evaluate a model over a grid of strategies, sizes and systems."""
    from symsim.grid.command import Taken, sweep_options
    from symsim.grid.command import sweep as run

    taken = Taken(plot, tuple(name.strip() for name in over.split(",")) if over is not None else (), strategies, export)
    options = sweep_options(
        where, fits, top, by, pareto, columns, output, resume, search, backend, engine, scheduler, workers, taken, as_json=as_json
    )
    found = run(model, strategy, system, settings or (), axes or (), options, as_json=as_json)
    if output is None:
        print_out(found)


app.command()(planned.plan)
app.command()(planned.diff)
app.command()(formulas.formula)


@app.command("compile")
def make(
    model: Model,
    strategy: StrategyText = None,
    system: SystemName = None,
    settings: Settings = None,
    free: Annotated[
        str | None, typer.Option("--free", metavar="NAMES", help="The module's arguments, separated by commas; all other symbols become numbers.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to FILE (.py) instead of standard output.")] = None,
) -> None:
    """Compile a model's cost under a strategy to a Python module over arrays, which needs NumPy alone."""
    from symsim.inputs.reading import write_text
    from symsim.program.base import read_base
    from symsim.program.module import compile_module, free_names

    if output is not None and output.suffix != ".py":
        raise InputError(f"{output}: a Python module ends in .py")
    base = read_base(model, strategy, system, settings or ())
    source = compile_module(base, free_names(free))
    if output is None:
        print_out(source)
    else:
        write_text(output, source)
        say(f"wrote {output}")
    if base.note:
        say(base.note)


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="limits workload derive compile scalar grid search process options peers searches; all but the last two unless given.",
        ),
    ] = None,
    peers: Annotated[bool, typer.Option("--peers", help="Also SimuMax, Calculon and llm-analysis, where they can be imported.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Time symsim on this machine, in relation to what the machine can do."""
    from symsim.bench import run

    run(names or (), peers, as_json, print_out)


app.command("show")(showing.show)
app.command("list")(listing.list_all)


@app.command("import", context_settings={"ignore_unknown_options": True})
def bring(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"The system the files come from: {', '.join(KINDS)}.", autocompletion=kinds(KINDS))],
    inputs: Annotated[list[str] | None, typer.Argument(metavar="FILE_OR_ARGS", help="Its files, or arguments as on its command line.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write it to DIR, which then stands for MODEL.")] = None,
    lenient: Annotated[bool, typer.Option("--lenient", help="Keys that are unknown or cannot be answered become rows of the ledger.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ledger as one JSON object.")] = False,
    model: Annotated[str | None, typer.Option("--of", metavar="MODEL", help="The model, where the files name none.")] = None,
    version: Annotated[str | None, typer.Option("--version", metavar="VERSION", help="Whose defaults hold: seed or head.")] = None,
    variables: Annotated[list[str] | None, typer.Option("--var", metavar="NAME=VALUE", help="A variable of a script; repeatable.")] = None,
    faithful: Annotated[bool, typer.Option("--faithful", help="Known defects of the system stay in.")] = False,
) -> None:
    """Read another system's configuration and say what became of every key."""
    from symsim.importers.job import write_job
    from symsim.importers.ledger import ledger_text
    from symsim.importers.reading import Options, read_job

    kind_first("import", kind, inputs or (), KINDS)
    given = dict(pair("--var", text) for text in variables or ())
    job = read_job(kind, inputs or (), Options(lenient, version, given, model, faithful))
    written = write_job(job, output) if output is not None else []
    print_out(json.dumps(job.to_json()) + "\n" if as_json else ledger_text(job))
    for note in job.notes:
        say(note)
    say(f"wrote {', '.join(map(str, written))}" if written else "nothing written; -o DIR writes what follows from it")


@app.command("export")
def take(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"The system to write for: {', '.join(TARGETS)}.", autocompletion=kinds(TARGETS))],
    model: Model,
    strategy: StrategyText = None,
    system: SystemName = None,
    settings: Settings = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="The file; for simumax a directory.")] = None,
) -> None:
    """Write a strategy as a file that another system starts from, and say what it cannot carry."""
    from symsim.exporters.export import Asked, exported

    if output is None:
        raise InputError("symsim export writes a file: give one with -o")
    kind_first("export", kind, [model], TARGETS)
    result, _ = _result(model, strategy, system, settings)
    say_all(exported(kind, Asked(result.model, result.strategy, result.system, result.assumptions), output))
    say_replaced(model, strategy)


@app.command("audit")
def hold(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="SOURCE", help="Sources by name, files of claims, or ids of claims; all sources unless given.")
    ] = None,
    accepted: Annotated[list[str] | None, typer.Option("--accept", metavar="ID", help="Store what is found of this claim; repeatable.")] = None,
    formula: Annotated[str | None, typer.Option("--formula", metavar="EXPR", help="A formula of one's own instead, in symsim's symbols.")] = None,
    says: Annotated[str | None, typer.Option("--is", metavar="NAME", help="The definition, or expression over some, that it is said to be.")] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="MODEL", help="Of which model: as for derive, or one for claims.")] = None,
    strategy: StrategyText = None,
    system: SystemName = None,
    settings: Settings = None,
    given: Annotated[list[str] | None, typer.Option("--given", metavar="FACTS", help="Facts, as g=a or m>=pp; repeatable.")] = None,
    keep: Annotated[list[str] | None, typer.Option("--keep", metavar="NAMES", help="Definitions that stay symbols, as tc,sum_t; repeatable.")] = None,
    explained: Annotated[bool, typer.Option("--explain", help="Also the assumptions under which symsim comes nearest, and what remains.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help=f"A report: {' '.join(SUFFIXES)}.")] = None,
) -> None:
    """Prove published formulas against what symsim derives."""
    if formula is not None:
        from symsim.audit.own import Own, run_own

        if says is None or model is None or sources or accepted or output is not None:
            raise InputError("--formula needs --is and --model, and takes no SOURCE, no --accept and no -o")
        named = dict(pair("--set", text) for text in settings or ())
        status = run_own(Own(formula, says, model, strategy or "", system or "", named, given or (), keep or (), explained), as_json, print_out)
    elif says is not None or model is not None or strategy is not None or system is not None or settings or given or keep or explained:
        raise InputError("--is, --model, -s, -y, --set, --given, --keep and --explain are for a --formula")
    else:
        from symsim.audit.command import run, run_accept

        if accepted and output is not None:
            raise InputError("--accept stores verdicts and writes no report: give -o without it")
        status = run_accept(accepted, sources or (), say) if accepted else run(sources or (), as_json, output, print_out, say)
    if status:
        raise SystemExit(status)


@app.command()
def calibrate(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="A name from 'symsim list systems', or a system file.")],
    points: Annotated[str, typer.Option("--points", metavar="FILE", help="Measured times: .csv (docs/systems.md has the columns) or .json.")],
    op: Annotated[str | None, typer.Option("--op", metavar="OP", help="gemm, grouped_gemm, attention, memory or collective; else all.")] = None,
    shortest: Annotated[
        float, typer.Option("--longer-than", metavar="MS", help="Leave out calls of fewer milliseconds, which may not reach the sustained clock.")
    ] = 0.0,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write a complete system file.")] = None,
) -> None:
    """Fit a system's coefficients to measured times; print the errors in and out of sample."""
    from symsim.calibration.calibrate import OPS, plain, table, write_system
    from symsim.calibration.calibrate import calibrate as fit
    from symsim.calibration.points import read_points
    from symsim.inputs.systems import load_system

    if op is not None and op not in OPS:
        raise InputError(f"--op {op}: {nearest(op, OPS)}")
    if not shortest >= 0:
        raise InputError(f"--longer-than {shortest:g}: a number of milliseconds is needed")
    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise InputError(f"{output}: a system file ends in .yaml")
    found = fit(load_system(system), read_points(points), op, shortest / 1000)
    if output is not None:
        write_system(output, plain(system), found, Path(points).name)
    print_out(table(found))
    say(f"wrote {output}" if output is not None else "nothing written; -o FILE writes a system file")


@app.command()
def anchor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="As for derive; the system, where --measured says what ran.")],
    strategy: StrategyText = None,
    system: SystemName = None,
    settings: Settings = None,
    step: Annotated[str | None, typer.Option("--step", metavar="TIME", help="Measured time of a step, such as 12.9s.")] = None,
    rows: Annotated[str | None, typer.Option("--rows", metavar="FILE", help="More measured steps: .csv or .yaml with step and what ran.")] = None,
    trace: Annotated[str | None, typer.Option("--trace", metavar="FILE", help="Kernels of the step by kind: .csv with kind and seconds.")] = None,
    measured: Annotated[str | None, typer.Option("--measured", metavar="FILE", help="As --rows, of a system: each row names its model.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write a complete system file.")] = None,
) -> None:
    """Move a system's shares to steps measured on the machine itself."""
    from symsim.api.anchored import anchor as moved
    from symsim.report.anchored import anchor_table

    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise InputError(f"{output}: a system file ends in .yaml")
    named = dict(pair("--set", text) for text in settings or ())
    if measured is None:
        found = moved(model, strategy, system, step=step, rows=rows, trace=trace, overrides=named)
    elif any(given is not None for given in (strategy, system, step, rows, trace)):
        raise InputError(
            "--measured FILE is for 'symsim anchor SYSTEM --measured FILE', where each row of FILE says what ran; -s, -y, --step, "
            "--rows and --trace are for 'symsim anchor MODEL'"
        )
    else:
        found = moved(None, None, model, rows=measured, overrides=named)
    if output is not None:
        found.write(output)
    print_out(anchor_table(found))
    say(f"wrote {output}" if output is not None else "nothing written; -o FILE writes a system file")


def _result(model: str, strategy: str | None, system: str | None, settings: Sequence[str] | None) -> "tuple[Result, list[str]]":
    """What is asked for, and what a user should know of it besides, to be said once it is answered."""
    from symsim.api.given import as_given

    made = as_given(model, strategy, system, settings)
    return made.result, [*made.notes, *made.idle.values()]


app.command("ask")(asking(_result))


def _misused(error: Any, command: str, words: Sequence[str]) -> str:
    """What of a command line of so many words does not fit the command, with what would be right, and where its help is."""
    # an option without its value has no context
    said, asked = error.format_message().rstrip("."), error.ctx.command_path if error.ctx else f"symsim {command}".rstrip()
    meant = str(getattr(getattr(error, "param", None), "help", None) or "") if said.startswith("Missing") else ""
    said += f": {meant[:1].lower()}{meant[1:].rstrip('.')}" if meant else ""
    option = getattr(error, "option_name", None)
    if option is not None and said.startswith("No such option") and error.ctx:
        from symsim.inputs.strategies import RANKS
        from symsim.inputs.strategy import Strategy

        name, known = option.lstrip("-").replace("-", "_"), [text for one in error.ctx.command.params for text in one.opts if text[:2] == "--"]
        takes = {"--strategy": "-s", "--fix": "--fix"}.get(next((one for one in ("--strategy", "--fix") if one in known), ""))
        is_strategy = takes is not None and (name in Strategy.model_fields or name == RANKS)
        said = f"there is no option {option}: " + (f"{takes} {name}=VALUE sets it in the strategy" if is_strategy else nearest(option, known))
    elif said.startswith("Got unexpected") and "=" in said:
        said += ", and a strategy is one text: -s tp=8,pp=2"
    elif said.startswith("Got unexpected"):
        said += among(words, said)
    there = "commands and options" if asked == "symsim" else "arguments and options"
    return f"{said}{'' if said.endswith('?') else ';'} '{asked} --help' lists {there}"


def _fail(reason: str, status: int) -> NoReturn:
    say(reason)
    raise SystemExit(status)


def _run(command: Any, arguments: list[str]) -> Any:
    try:
        return command.main(args=arguments, prog_name="symsim", standalone_mode=False)
    except OSError as error:
        # the commands report their own files; what is left is help that cannot be printed
        leave_output(error)
    except ValueError as error:
        # of a path with a NUL or half a character, which older typer hands to the system as it is
        if not isinstance(error, UnicodeError) and "embedded null" not in str(error):
            raise
        _fail(f"an argument cannot be a path: {error}", 2)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its status: 0 done, 1 a check failed, 2 bad input."""
    given = completing.asked_words()[1:] if completing.VARIABLE in os.environ else list(sys.argv[1:] if arguments is None else arguments)
    # pydantic would go through all installed packages for plugins of its own
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # nothing here multiplies matrices, and threads that do would keep this process from being forked
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # what is imported and derived stays until the end: going through it again and again finds nothing
    gc.set_threshold(_COLLECTED_AFTER)
    # nor is there anything to find when all of it goes
    atexit.register(gc.freeze)
    commands = {str(one.name or getattr(one.callback, "__name__", "")): one for one in app.registered_commands}
    asked = copy(app)
    if given and given[0] in commands:
        # typer takes milliseconds to build a command
        asked.registered_commands = [commands[given[0]]]
    command: Any = typer.main.get_command(asked)
    if completing.VARIABLE in os.environ:
        completing.complete(partial(command.main, args=[], prog_name="symsim"))
    if hasattr(sys.stdout, "reconfigure"):
        # a terminal that cannot show a character gets its escape, not a traceback
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if given and not given[0].startswith("-") and given[0] not in commands:
            _fail(f"there is no command '{given[0]}': {nearest(given[0], list(commands))}", _BAD_INPUT)
        if given and given[0] in commands:
            check_once(command.commands[given[0]].params, given[1:])
        with in_doubles():
            status = _run(command, given)
    except InputError as error:
        _fail(str(error), _BAD_INPUT)
    except _UsageError as error:
        _fail(_misused(error, given[0] if given and given[0] in commands else "", given), _BAD_INPUT)
    except (typer.Abort, KeyboardInterrupt):
        # the shell has moved to a new line's start only if ^C was typed; begin one either way
        print(file=sys.stderr)
        raise SystemExit(_INTERRUPTED) from None
    raise SystemExit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
