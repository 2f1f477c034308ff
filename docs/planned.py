"""docs/planned.md: what `symsim plan` finds for the model, system and world of every published run, beside what the authors ran.

    python docs/planned.py [--most-ranks 64] [--only TEXT] [--limit 600]

Both are under symsim's own model. What belongs to a run and is no choice of a plan (precision, dropout, optimizer, loss, ..) is fixed to what the
authors had. Rows that were made before are kept (docs/planned.json); those asked for are made anew. ../shared/measured has to be there.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from measured_cases import SOURCES, cases  # noqa: E402
from measured_row import Case  # noqa: E402

from symsim.api.result import Result, derive  # noqa: E402
from symsim.errors import InputError  # noqa: E402
from symsim.inputs.assumptions import resolve  # noqa: E402
from symsim.inputs.models import LoadedModel  # noqa: E402
from symsim.inputs.systems import load_system  # noqa: E402
from symsim.planning.frameworks import FRAMEWORKS, framework_of  # noqa: E402
from symsim.planning.plan import Plan, plan  # noqa: E402
from symsim.planning.space import Asked, options_of, space_of  # noqa: E402

KEPT = ROOT / "docs" / "planned.json"
PAGE = ROOT / "docs" / "planned.md"
BAR = 30.0  # CPU seconds that a plan may take
# options that say how the layers of a pipeline are cut: a plan cuts them evenly, and so does not take them over
CUTS = ("pipeline_model_parallel_layout", "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "recompute_layers_per_stage")
# what follows from the degrees and the batch
FOLLOWS = ("dp", "num_microbatches", "global_batch_size", "seq_length")


@dataclass(frozen=True)
class Row:
    """theirs: of all runs of this model, system, world and batch the one that is the fastest under symsim's model. Seconds of a step; CPU seconds
    that the plan took; fits: whether theirs does. why: of a plan that is refused."""

    run: str
    system: str
    world: int
    theirs: float
    fits: bool
    strategy: str
    best: float | None = None
    found: str = ""
    configurations: int = 0
    took: float = 0.0
    why: str = ""


def groups(most_ranks: int, only: str) -> list[list[Case]]:
    """Runs that a plan answers together: the same model, system, world, batch, and options that no plan chooses."""
    made: dict[str, list[Case]] = {}
    for source in SOURCES:
        for case in cases(source):
            if case.strategy.world_size <= most_ranks and only in case.id:
                key = [
                    case.architecture.model_dump_json(),
                    case.system,
                    str(case.strategy.world_size),
                    str(batch(case)),
                    str(case.strategy.seq_length),
                ]
                made.setdefault("|".join([*key, repr(sorted(fixed(case).items())), repr(sorted(case.assumptions.items()))]), []).append(case)
    return sorted(made.values(), key=lambda group: group[0].strategy.world_size)


def batch(case: Case) -> int:
    return case.strategy.micro_batch_size * case.strategy.dp * case.strategy.microbatches


def fixed(case: Case) -> dict[str, Any]:
    """Options of a run that its plan does not choose, where they are not the defaults; what the framework has by itself, where theirs is another."""
    framework = FRAMEWORKS[framework_named(case)]
    asked = asked_of(case, {})
    axes, choices, derived = space_of(asked)
    chosen = {n for one in (*axes, *choices) for n in one.names} | {d.name for d in derived} | {*options_of(asked), *CUTS, *FOLLOWS}
    own, other = case.strategy.model_dump(), case.strategy.model_dump(exclude_defaults=True)
    held = {*framework.staged, *(name for name, value in framework.fixed.items() if own[name] != value)}
    return {name: value for name, value in own.items() if name in held or (name in other and name not in {*chosen, *framework.fixed})}


def framework_named(case: Case) -> str:
    return next(name for name, f in FRAMEWORKS.items() if f.fixed["fusion"] == case.strategy.fusion)


def asked_of(case: Case, options: dict[str, Any]) -> Asked:
    loaded = LoadedModel(case.architecture, case.id, assumptions=resolve(case.assumptions))
    framework = framework_of(framework_named(case))
    return Asked(loaded, case.architecture, case.system, case.strategy.world_size, batch(case), case.strategy.seq_length, framework, options)


def made(group: Sequence[Case], limit: int) -> Row:
    """The plan of a group beside the fastest of its runs."""
    own = [(derive(c.architecture, c.strategy, c.assumptions, None, load_system(c.system)), c) for c in group]
    theirs, case = min(own, key=lambda pair: float(pair[0].value("time.step")))
    row = Row(case.id, case.system, case.strategy.world_size, float(theirs.value("time.step")), fits(theirs), text_of(theirs))
    began = time.process_time()
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        found = planned(case)
    except TimeoutError:
        return Row(**{**asdict(row), "why": f"stopped after {limit} s of CPU", "took": float(limit)})
    except InputError as error:
        return Row(**{**asdict(row), "why": str(error), "took": time.process_time() - began})
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    best = found.best[0]
    more = {"configurations": found.certificate.configurations, "took": time.process_time() - began}
    if not found.fits:
        return Row(**{**asdict(row), **more, "why": "nothing of the space fits"})
    return Row(**{**asdict(row), **more, "best": float(best.result.value("time.step")), "found": best.text})


def _stop(*_: object) -> None:
    raise TimeoutError


def planned(case: Case) -> Plan:
    loaded = LoadedModel(case.architecture, case.id, assumptions=resolve(case.assumptions))
    return plan(
        loaded,
        case.system,
        world=case.strategy.world_size,
        global_batch_size=batch(case),
        seq_length=case.strategy.seq_length,
        framework=framework_named(case),
        fix=fixed(case),
        top=1,
    )


def fits(result: Result) -> bool:
    return bool(result.value("memory.peak") + result.value("memory.reserve") <= result.value("memory.capacity"))


def text_of(result: Result) -> str:
    given = result.strategy.model_dump(mode="json", exclude_defaults=True)
    return ",".join(f"{n}={'+'.join(map(str, v)) if isinstance(v, list) else str(v).lower() if isinstance(v, bool) else v}" for n, v in given.items())


def differing(row: Row) -> tuple[str, str]:
    """What is only in theirs, and only in the plan's."""
    theirs, ours = (set(text.split(",")) for text in (row.strategy, row.found))
    passed = tuple(f"{name}=" for name in ("world", *FOLLOWS))
    return tuple(", ".join(sorted(p for p in one - other if not p.startswith(passed))) for one, other in ((theirs, ours), (ours, theirs)))  # type: ignore[return-value]


def page(rows: Iterable[Row]) -> str:
    """The page: how many plans are at least as fast, and every row."""
    rows = sorted(rows, key=lambda r: (r.world, r.run))
    ran = [r for r in rows if r.best is not None]
    slower = [r for r in ran if r.best is not None and r.best > r.theirs * (1 + 1e-9)]
    late = [r for r in rows if r.took > BAR]
    lines = [
        "# Plans beside published runs",
        "",
        "For the model, the accelerators and the batch of a published run, what `symsim plan` finds, beside what the authors ran, both under",
        "symsim's model (how far that is from measured steps is on [accuracy.md](accuracy.md)). Precision, optimizer, dropout, fusions and what",
        "else a plan does not choose are the authors'. Of several runs of one model, system, world and batch the fastest stands here. Made by",
        "`python docs/planned.py`.",
        "",
        f"{len(rows)} plans; the best is at least as fast in {len(ran) - len(slower)} and slower in {len(slower)}; {len(rows) - len(ran)} have none.",
        f"A plan took {max((r.took for r in rows), default=0):.0f} s of CPU at most; {len(late)} took more than {BAR:.0f} s.",
        "",
        "| run | system | ranks | theirs | plan | of theirs | only theirs | only the plan's | configurations | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        theirs = f"{r.theirs:.4g} s" + ("" if r.fits else ", does not fit")
        head = f"| `{r.run}` | {r.system} | {r.world} | {theirs}"
        if r.best is None:
            lines.append(f"{head} | {r.why.replace('|', '&#124;')} | | | | {r.configurations:,} | {r.took:.1f} |")
        else:
            one, other = differing(r)
            lines.append(f"{head} | {r.best:.4g} s | {r.best / r.theirs:.1%} | {one} | {other} | {r.configurations:,} | {r.took:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most-ranks", type=int, default=64)
    parser.add_argument("--only", default="", help="runs whose id contains this")
    parser.add_argument("--limit", type=int, default=600, help="CPU seconds after which a plan is stopped")
    given = parser.parse_args()
    kept = {r["run"]: Row(**r) for r in json.loads(KEPT.read_text())} if KEPT.exists() else {}
    for group in groups(given.most_ranks, given.only):
        row = made(group, given.limit)
        kept = {n: r for n, r in kept.items() if n not in {c.id for c in group}} | {row.run: row}
        print(f"{row.run}: {row.theirs:.4g} s, plan {row.best or row.why}, {row.took:.1f} s", file=sys.stderr, flush=True)
        KEPT.write_text("[\n" + ",\n".join(json.dumps(asdict(r)) for r in kept.values()) + "\n]\n")
        PAGE.write_text(page(kept.values()))


if __name__ == "__main__":
    main()
