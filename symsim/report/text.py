"""The output of `symsim eval`: a result in 80 columns of plain text."""

from __future__ import annotations

from symsim.algebra.key import layers
from symsim.algebra.quantity import BYTE, ELEMENT, FLOP
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.run import run_of
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.ir.collectives import COLLECTIVES
from symsim.pipeline.schedules import schedule_of
from symsim.report import text_run, text_time
from symsim.report.amounts import human, seconds, whole
from symsim.report.assumed import in_force
from symsim.report.columns import digits, table, wrapped
from symsim.report.ink import DIMENSIONS
from symsim.report.question import batch, changed_options, idle_pipeline
from symsim.report.step import Step
from symsim.report.totals import Totals, ranges


def eval_table(result: Evaluation) -> str:
    totals = Totals(result)
    time = [] if result.system is None else text_time.blocks(Step(result))
    run = run_of(result)
    parts = [
        heading(result),
        *(text_run.blocks(run) if run is not None else []),
        *time,
        _summary(result),
        _modules(totals),
        _stages(totals),
        _placement(result),
        _messages(totals),
        _assumptions(result),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def brief(result: Evaluation) -> str:
    """A result in a few lines, for a prompt."""
    number = result.numbers
    said = [f"{human(whole(number['N']), ELEMENT)} parameters", f"{human(whole(number['F']), FLOP)} forward a micro-batch"]
    said.append(f"peak memory {human(whole(result.value('memory.peak')), BYTE)} a rank")
    if result.system is not None:
        said.append(f"a step {seconds(result.value('time.step'))}")
    lines = [
        heading(result),
        wrapped("; ".join(said)),
        wrapped("table() prints all; value(name), formula(name), to_json(); 'symsim list quantities' has names"),
    ]
    return "\n".join(lines)


def heading(result: Evaluation) -> str:
    """What a result is of, in lines of 80 columns."""
    return "\n".join(map(wrapped, headings(result)))


def headings(result: Evaluation) -> list[str]:
    """The model, the options, the ranks, the batch."""
    options = ", ".join(f"{name}={value}" for name, value, _ in changed_options(result.strategy))
    ranks = result.strategy.world_size
    on = f" on {result.system.name}: {result.system.title}" if result.system is not None else ""
    size = f"{ranks:,} rank{'s' if ranks > 1 else ''}{on}"
    idle = idle_pipeline(result.strategy)
    return [result.model.name, options or "every option at its default", size, batch(result.strategy), *([idle] if idle else [])]


def _summary(result: Evaluation) -> str:
    number = result.numbers
    rows = [("parameters", whole(number["N"]), ELEMENT)]
    if "N_active" in number:
        rows.append(("  a token uses", whole(number["N_active"]), ELEMENT))
    if "N_trained" in number:
        rows.append(("  trained", whole(number["N_trained"]), ELEMENT))
    rows += [("FLOPs forward", whole(number["F"]), FLOP), ("FLOPs backward", whole(number["G"]), FLOP)]
    if number["R"]:
        rows.append(("FLOPs run again", whole(number["R"]), FLOP))
    if "F_further" in number:
        rows.append(("FLOPs of further forwards", whole(number["F_further"]), FLOP))
    return table("Model, one micro-batch", ("", "about", "exactly"), [(t, human(n, u), digits(n)) for t, n, u in rows])


def _modules(totals: Totals) -> str:
    parameters, flops = totals.parameters(), totals.flops
    again = any(f["recompute"] for f in flops.values())
    kinds = ["forward", "backward", *(["recompute"] if again else [])]
    names = list(dict.fromkeys([*parameters, *flops]))
    rows = [
        [
            totals.in_words(m),
            human(parameters[m], ELEMENT) if parameters.get(m) else "",
            *(human(flops[m][k], FLOP) if flops.get(m, {}).get(k) else "" for k in kinds),
        ]
        for m in names
    ]
    return table("By module", ["", "parameters", *("run again" if k == "recompute" else k for k in kinds)], rows)


def _stages(totals: Totals) -> str:
    result = totals.result
    again = any(totals.stage_numbers(first)["Z_stage"] for _, first in totals.alike)
    columns = [
        ("P_stage", "parameters", ELEMENT),
        ("X_stage", "forward", FLOP),
        ("Y_stage", "backward", FLOP),
        *([("Z_stage", "run again", FLOP)] if again else []),
        ("A_stage", "saved", BYTE),
    ]
    rows = []
    for members, first in totals.alike:
        numbers = totals.stage_numbers(first)
        held = sum(int(numbers[layers(k).text]) for k in result.model.kind_names())
        rows.append([ranges(members).replace("\u2013", "-"), str(held), *(human(whole(numbers[n]), u) for n, _, u in columns)])
    made = table("One rank of each stage, one micro-batch", ["stage", "layers", *(c for _, c, _ in columns)], rows)
    both = "\n  Parameters: of the stage at the other end too, which a rank holds." if schedule_of(result.strategy).mirrored else ""
    return f"{made}{both}"


def _placement(result: Evaluation) -> str:
    rows = result.placed()
    own = [wrapped(f"{name}: {DIMENSIONS[name]}.", "  ") for what, _ in rows for name in what.split(", ") if name in DIMENSIONS]
    return "\n".join([table("Placement: where dimensions lie on the mesh", ["", "on"], rows, left=2), *own]) if rows else ""


def _messages(totals: Totals) -> str:
    busiest = totals.busiest
    rows = [
        [
            phase,
            COLLECTIVES[op].said,
            axis,
            str(int(group.evaluate(totals.result.numbers))),
            str(calls),
            human(sent, BYTE),
            human(received, BYTE),
            "mb" if per == "microbatch" else per,
        ]
        for phase, op, axis, per, group, calls, sent, received in totals.messages[busiest]
    ]
    if not rows:
        return "Messages: none"
    where = f" of stage {busiest}, the busiest" if len(totals.result.stages) > 1 else ""
    return table(
        f"Messages of one rank{where} (mb: micro-batch)",
        ["phase", "operation", "over", "ranks", "calls", "handed in", "got back", "per"],
        rows,
        left=3,
    )


def _assumptions(result: Evaluation) -> str:
    changed = [f"{n}={v}" for n, v in in_force(result).items() if v != ASSUMPTIONS[n].default]
    kept = [f"{n}={v}" for n, v in in_force(result).items() if v == ASSUMPTIONS[n].default]
    lines = ["Assumptions"]
    if changed:
        lines.append(wrapped("changed: " + ", ".join(changed), "  "))
    return "\n".join([*lines, wrapped("default: " + ", ".join(kept), "  ")])
