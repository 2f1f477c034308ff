"""The benchmarks of symsim beside its peers: the same configurations by each, in one process; and their searches beside a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from symsim.bench.figures import Block, Figure
from symsim.bench.measuring import processor_seconds
from symsim.bench.peer_searches import SEARCHES, PeerSearch, searched
from symsim.bench.peers import CONFIGURATIONS, line_of, peer_rates, silence
from symsim.bench.setting import ASKED, BEST, FITS, Bench
from symsim.bench.walks import walked_once, walks_of
from symsim.grid.axes import Axis
from symsim.grid.question import ask
from symsim.grid.space import Space
from symsim.grid.sweep import Sweep
from symsim.program.base import read_base
from symsim.program.scalar import scalar_kernel


def bench_peers(bench: Bench) -> Iterator[Block]:
    rates, missing = peer_rates(bench.setting.peer_seconds)
    scalar, sweep = _scalar_rate(bench, CONFIGURATIONS), _sweep_rate(bench, CONFIGURATIONS)
    figures = [Figure(f"{r.name} {r.version}", r.per_second, "1/s") for r in rates]
    figures += [Figure("symsim, one at a time", scalar, "1/s"), Figure("symsim, a sweep's kernel", sweep, "1/s")]
    figures += [Figure(f"symsim, one at a time / {r.name}", scalar / r.per_second, "x") for r in rates]
    figures += [Figure(f"symsim, a sweep's kernel / {r.name}", sweep / r.per_second, "x") for r in rates]
    every = f"all {len(CONFIGURATIONS)} configurations"
    notes = [
        *(f"{r.name}: {r.what}" for r in rates),
        *missing,
        f"symsim, one at a time: {every}, the whole model, by scalar kernels already made",
        f"symsim, a sweep's kernel: {every} at {bench.setting.peer_sequences} sequence lengths, every point computed, by NumPy",
    ]
    yield Block("peers", "configurations of llama3-70b on H100s in one process, CPU time", tuple(figures), tuple(notes))


def bench_searches(bench: Bench) -> Iterator[Block]:
    """Of every peer with a search of its own, that search beside a plan: figures where it can be asked, else a sentence."""
    yield from map(_searched, SEARCHES)


def _searched(peer: PeerSearch) -> Block:
    title = f"{peer.name}'s own search beside symsim plan: {peer.asked.what}, {peer.asked.batch} sequences a step, CPU time"
    try:
        with silence():
            found = searched(peer)
    except Exception as error:  # another version, or another package of this name, may fail in any way
        return Block("searches", title, (), (f"{peer.name} is not asked: {line_of(error)}",))
    theirs, ours = found.theirs, found.ours
    figures = (
        Figure(f"{peer.name}", found.seconds[0], "s"),
        Figure("symsim plan", found.seconds[1], "s"),
        Figure(f"best of {peer.name}, a step under symsim's model", theirs.here, "s"),
        Figure("best of symsim, a step under symsim's model", ours.here, "s"),
        Figure(f"best of {peer.name}, a step under {peer.name}'s model", theirs.there, "s"),
        Figure(f"best of symsim, a step under {peer.name}'s model", ours.there, "s"),
    )
    notes = (
        f"{peer.name} evaluated {found.configurations[0]:,} configurations; of the {found.configurations[1]:,} in the plan's space each was refused, "
        "excluded by a bound, or evaluated",
        f"best of {peer.name}: {theirs.strategy}",
        f"best of symsim: {ours.strategy}",
    )
    return Block("searches", title, figures, notes)


def _scalar_rate(bench: Bench, configurations: Sequence[Sequence[int]]) -> float:
    """Configurations a CPU second by scalar kernels: one for each depth of the pipeline, with and without replicas."""
    kernels: dict[tuple[int, bool], Callable[..., Any]] = {}
    calls: list[Callable[[], Any]] = []
    for tp, pp, dp, b, m in configurations:
        key = (pp, dp > 1)
        free = {"tp": tp, "b": b, "m": m} | ({"dp": dp} if dp > 1 else {})
        if key not in kernels:
            strategy = f"tp={tp},pp={pp},dp={dp},sp=true,micro_batch_size={b},num_microbatches={m},seq_length=4096"
            kernels[key] = scalar_kernel(read_base("llama3-70b", strategy, bench.setting.system, ()), tuple(free), ASKED)
        calls.append(partial(kernels[key], **free))
    return len(calls) / processor_seconds(lambda: [call() for call in calls], bench.setting.peer_seconds / 5)


def _sweep_rate(bench: Bench, configurations: Sequence[Sequence[int]]) -> float:
    """Configurations a CPU second by a sweep's NumPy kernels on one core."""
    lengths = tuple(range(64, 64 * (bench.setting.peer_sequences + 1), 64))
    joint = Axis(("tp", "pp", "dp", "micro_batch_size", "num_microbatches"), tuple(map(tuple, zip(*configurations))))
    base = read_base("llama3-70b", "sp=true,tp=2", bench.setting.system, ())
    question = ask(where=(FITS,), top=bench.setting.top, by=BEST, timed=True)
    sweep = Sweep(Space(base, [joint, Axis(("seq_length",), (lengths,))]), question, "scan", "numpy")
    sweep.prepare()
    walks = walks_of(sweep, "numpy", None)
    return sweep.space.points / processor_seconds(partial(walked_once, walks, "numpy", 1, bench.setting.top), bench.setting.peer_seconds / 5)
