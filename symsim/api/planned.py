"""The commands plan and diff."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from symsim.api import completing
from symsim.api.arguments import Model, Settings, pair, share
from symsim.api.terminal import print_out, say

Systems = Annotated[
    list[str] | None,
    typer.Option(
        "-y",
        "--system",
        metavar="SYSTEM",
        help="A name from 'symsim list systems', or a system file; repeatable.",
        autocompletion=completing.systems,
    ),
]
Fix = Annotated[
    str | None,
    typer.Option("--fix", metavar="STRATEGY", help="Options that every strategy has: tp=8,recompute=none.", autocompletion=completing.strategies),
]


def plan(
    model: Model,
    systems: Systems = None,
    world: Annotated[str | None, typer.Option("--world", metavar="N", help="Accelerators; several as of --axis: 16:4096:*2.")] = None,
    batch: Annotated[int | None, typer.Option("--global-batch-size", metavar="N", help="Sequences a step.")] = None,
    tokens: Annotated[str | None, typer.Option("--tokens-per-step", metavar="N", help="Tokens a step, in place of sequences: 4M, 4194304.")] = None,
    length: Annotated[int | None, typer.Option("--seq-length", metavar="N", help="Tokens a sequence; of a job its own, else 4096.")] = None,
    goal: Annotated[str, typer.Option("--for", metavar="GOAL", help="tokens_per_second, cost, energy or memory.")] = "tokens_per_second",
    framework: Annotated[str, typer.Option("--framework", metavar="NAME", help="Whose strategies: megatron, torchtitan, deepspeed.")] = "megatron",
    fix: Fix = None,
    allow: Annotated[list[str] | None, typer.Option("--allow", metavar="NAME=VALUES", help="A further axis, as of sweep; repeatable.")] = None,
    filled: Annotated[str, typer.Option("--fits-with", metavar="SHARE", help="Share of the memory that may be filled, such as 90%.")] = "1",
    top: Annotated[int, typer.Option("--top", metavar="K", help="Strategies shown, of kinds that differ.")] = 5,
    why_not: Annotated[str | None, typer.Option("--why-not", metavar="STRATEGY", help="Why this one is not the best.")] = None,
    written: Annotated[tuple[str, Path] | None, typer.Option("--export", metavar="KIND FILE", help="Write the best as a trainer's file.")] = None,
    run_tokens: Annotated[str | None, typer.Option("--tokens", metavar="N", help="A run of so many tokens, such as 15T: what does it.")] = None,
    days: Annotated[str | None, typer.Option("--days", metavar="D", help="Days that the run may take.")] = None,
    budget: Annotated[str | None, typer.Option("--budget", metavar="USD", help="US dollars that it may cost, such as 2M.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw the curve over --world (.svg .html).")] = None,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find the best strategies for a model on so many accelerators, and prove that no other of the space is better."""
    from symsim.inputs.run import RUN
    from symsim.planning.command import Request, need_of, run

    given = dict(pair("--set", t) for t in settings or ())
    need = need_of(run_tokens, days, budget, {name: text for name, text in given.items() if name in RUN})
    request = Request(
        model,
        tuple(systems or ()),
        world,
        batch,
        tokens,
        length,
        goal,
        framework,
        fix,
        tuple(allow or ()),
        share("--fits-with", filled),
        top,
        {name: text for name, text in given.items() if name not in RUN},
        need,
        plot,
    )
    run(request, why_not, written, as_json, print_out, say)


def diff(
    models: Annotated[list[str], typer.Argument(metavar="MODEL", help="One model, or two to set side by side.")],
    strategies: Annotated[list[str] | None, typer.Option("-s", "--strategy", metavar="STRATEGY", help="Once for both, or twice.")] = None,
    systems: Annotated[list[str] | None, typer.Option("-y", "--system", metavar="SYSTEM", help="Once for both, or twice.")] = None,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Set two models, strategies or systems side by side, and say part by part where the difference of their steps is."""
    from symsim.api.order import models_alone
    from symsim.planning.command import run_diff

    models_alone("diff", models)
    run_diff(models, strategies or (), systems or (), settings or (), as_json, print_out, say)
