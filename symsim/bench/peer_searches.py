"""The searches that SimuMax and Calculon bring, and `symsim plan` over the same space on the same machine: what each looked at, in which CPU time,
and what each found, under both models.

A peer's search runs through its public interface, as of the versions that peers.py names. Its best comes here by `symsim import`; its model's answer
to what symsim found comes by `--compat`.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from symsim.bench.peer_files import calculon_application, calculon_system, simumax_model, simumax_system
from symsim.compat.verbs import evaluate_as
from symsim.importers.job import write_job
from symsim.importers.reading import load_job
from symsim.planning.plan import plan

Files = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Asked:
    """What both are asked. fix, axes: the peer's space as `symsim plan` takes it; rows: of options that vary together, lines of a file of points."""

    what: str
    world: int
    batch: int
    sequence: int
    fix: str
    axes: tuple[str, ...]
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Best:
    """A strategy as -s takes it, and the seconds of its step under symsim's model and under the peer's."""

    strategy: str
    here: float
    there: float


@dataclass(frozen=True)
class Searched:
    """configurations, seconds: that a search looked at, and CPU seconds that it took."""

    asked: Asked
    configurations: tuple[int, int]
    seconds: tuple[float, float]
    theirs: Best
    ours: Best


@dataclass(frozen=True)
class PeerSearch:
    """kind: as of `symsim import` and --compat. search: configurations that the peer evaluated, and its best as its own files."""

    name: str
    kind: str
    asked: Asked
    search: Callable[[Asked], tuple[int, Files]]


def searched(peer: PeerSearch) -> Searched:
    """Both searches of one space. ImportError, and whatever a peer of another version may raise, where it cannot be asked."""
    asked, began = peer.asked, time.process_time()
    number, files = peer.search(asked)
    theirs = time.process_time() - began
    with tempfile.TemporaryDirectory() as made:
        job, points = Path(made, "job"), Path(made, "points.csv")
        for name, data in files.items():
            Path(made, f"{name}.json").write_text(json.dumps(data))
        imported = load_job(peer.kind, *(str(Path(made, f"{name}.json")) for name in files))
        write_job(imported, job)
        points.write_text("\n".join(asked.rows) + "\n")
        began = sum(_spent())
        found = plan(
            str(job), None, world=asked.world, global_batch_size=asked.batch, seq_length=asked.sequence, fix=asked.fix, top=1,
            allow=(*asked.axes, *([f"@{points}"] if asked.rows else [])),
        )  # fmt: skip
        seconds = sum(_spent()) - began
        best = found.best[0]
        given = {n: v for n, v in (imported.strategy or {}).items() if n not in ("dp", "num_microbatches")}
        return Searched(
            asked,
            (number, found.certificate.configurations),
            (theirs, seconds),
            Best(imported.spelt(), float(found.at(given).value("time.step")), _there(peer.kind, job, None)),
            Best(best.text, float(best.result.value("time.step")), _there(peer.kind, job, best.text)),
        )


def _spent() -> tuple[float, ...]:
    """CPU seconds of this process and of those it waited for."""
    return os.times()[:4]


def _there(kind: str, job: Path, strategy: str | None) -> float:
    return float(evaluate_as(kind, str(job), strategy).step_numbers["t_step"])


# SimuMax's search takes degrees in turn, no recomputation, whole layers of a stage by bisection, and three sets of regions; nothing hides its
# messages of gradients
_SIMUMAX_LAYERS = 80
_REGIONS = ("pre_attention_norm+attention.qkv..attention.core", "pre_mlp_norm+mlp")
SIMUMAX = Asked(
    "Llama 3 70B on 64 H100",
    64,
    128,
    4096,
    "vpp=1,cp=1,micro_batch_size=1,overlap_grad_reduce=false,overlap_param_gather=false,tp_comm_overlap=false,"
    "p2p_comm=asynchronous,batch_p2p_sync=false,recompute_modules=core_attn",
    ("tp=1,2,4,8",),
    (
        "recompute,recompute_method,recompute_num_layers,recompute_operations",
        "none,block,1,null",
        *(f"full,block,{layers},null" for layers in range(1, _SIMUMAX_LAYERS + 1)),
        *(f"selective,block,1,{regions}" for regions in ("+".join(_REGIONS), *_REGIONS)),
    ),
)


def _simumax(asked: Asked) -> tuple[int, Files]:
    """`PerfLLM.search_best_parallel_strategy`: examples/search_strategy_llama3_8b.py of SimuMax."""
    config, perf = import_module("simumax.core.config"), import_module("simumax.core.perf_llm")
    evaluated, kept = Counter[str](), dict[float, Mapping[str, Any]]()

    class Noted(perf.PerfLLM):  # type: ignore[name-defined]
        def run_estimate(self, *given: Any, **named: Any) -> Any:
            evaluated["all"] += 1
            return super().run_estimate(*given, **named)

        def dump_paralism_and_recompute_perf(self, memory: Any, cost: Any) -> Any:
            said = super().dump_paralism_and_recompute_perf(memory, cost)
            fields = config.StrategyConfig.__dataclass_fields__
            kept[said["mfu"]] = {n: v for n, v in vars(self.strategy).items() if n in fields and v is not None}
            return said

    start = {"seq_len": asked.sequence, "micro_batch_size": 1, "micro_batch_num": 1, "world_size": asked.world, "tp_size": 1, "pp_size": 1,
             "enable_sequence_parallel": True, "zero_state": 1, "enable_recompute": True}  # fmt: skip
    peer = Noted()
    peer.configure(
        strategy_config=config.StrategyConfig.init_from_dict(start),
        model_config=config.ModelConfig.init_from_dict(simumax_model()),
        system_config=config.SystemConfig.init_from_dict(simumax_system()),
    )
    best = peer.search_best_parallel_strategy(
        world_size=asked.world, gmi_error=6, micro_batch_size=1, global_batch_size=asked.batch, all_search_result={}, use_reserved_memory=False,
        dump_path=None, verbose=False,
    )  # fmt: skip
    return evaluated["all"], {"strategy": kept[best["mfu"]], "model": simumax_model(), "system": simumax_system()}


# Calculon's search takes all degrees, chunks, micro-batches, what runs again, sharded states or not, three kinds of messages, overlap over data ranks
CALCULON = Asked(
    "GPT-3 13B on 16 H100",
    16,
    16,
    2048,
    "cp=1,tp_comm_overlap=false,p2p_comm=asynchronous,batch_p2p_sync=false,recompute_modules=core_attn,grad_reduce_in_fp32=false",
    (
        "vpp=1,2,4,5,8,10,20",
        "micro_batch_size=1:16:*2",
        "recompute=none,selective,full",
        "zero=0,1",
        "sp=false,true",
        "overlap_grad_reduce=false,true",
    ),
    (),
)


def _calculon(asked: Asked) -> tuple[int, Files]:
    """`calculon llm-optimal-execution`, without overlap over tensor ranks and with activations apart, which symsim has otherwise."""
    calculon, search = import_module("calculon"), import_module("calculon.llm.optimal_execution").OptimalExecution
    llm = calculon.Llm
    model, machine = llm.Application(calculon_application()), calculon.System(calculon_system())
    number, best = 0, list[Any]()
    for tp in llm.get_all_tensor_parallelisms(asked.world, model.hidden, model.attn_heads):
        for pp in llm.get_all_pipeline_parallelisms(asked.world, tp, model.num_blocks):
            dp = asked.world // (tp * pp)
            chunks = llm.get_valid_pipeline_interleavings(model.num_blocks, pp)
            for vpp, again, sharded, sent in product(chunks, ("full", "attn_only", "none"), {dp > 1, False}, ("ar", "p2p_rs_ag", "rs_ag")):
                found, tried, *_ = search.search(
                    False, 1, False, asked.world, asked.batch, "bfloat16", model, machine, tp, pp, dp, vpp, asked.batch, again, sharded, sent,
                    [False], False, False, True,
                )  # fmt: skip
                number, best = number + tried, search.update_list(best, found, 1)
    return number, {"execution": best[0][1], "application": calculon_application(), "system": calculon_system()}


SEARCHES = (PeerSearch("SimuMax", "simumax", SIMUMAX, _simumax), PeerSearch("Calculon", "calculon", CALCULON, _calculon))
