"""How many configurations a second the numeric peers evaluate: SimuMax, Calculon and llm-analysis, where they can be imported.

Each is asked for the step time and the memory of Llama 3 70B on H100s, for every one of CONFIGURATIONS that it accepts, through
its public interface as of the version named in `_PEERS`. A user installs them or names a checkout in PYTHONPATH; symsim does not
depend on them, and imports them only here, inside functions. Every efficiency is one and every latency nothing: how fast a peer
answers does not depend on them.
"""

from __future__ import annotations

import contextlib
import io
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata

from symsim.bench.peer_files import (
    FFN,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    MEMORY,
    MEMORY_BANDWIDTH,
    NIC,
    NVLINK,
    PEAK,
    SEQUENCE,
    VOCABULARY,
    calculon_system,
    simumax_model,
    simumax_system,
)

Configuration = tuple[int, int, int, int, int]

# (tp, pp, dp, b, m): ranks of tensor, pipeline and data parallelism, sequences of a micro-batch, micro-batches of a step
CONFIGURATIONS: tuple[Configuration, ...] = (
    *((8, 2, 4, 1, 16), (8, 4, 2, 1, 32), (8, 4, 2, 2, 16), (8, 8, 1, 1, 64), (4, 8, 2, 1, 32), (4, 16, 1, 1, 64)),  # 64 ranks
    *((8, 2, 8, 1, 8), (8, 4, 4, 1, 16), (8, 4, 4, 2, 8), (8, 8, 2, 1, 32), (4, 8, 4, 1, 16), (2, 16, 4, 1, 16)),  # 128
    *((8, 2, 16, 1, 8), (8, 4, 8, 1, 16), (8, 4, 8, 2, 16), (8, 8, 4, 1, 32), (4, 8, 8, 1, 32), (2, 16, 8, 1, 32)),  # 256
    *((8, 2, 32, 1, 8), (8, 4, 16, 1, 16), (8, 8, 8, 1, 32), (4, 4, 32, 1, 8), (4, 8, 16, 1, 16), (2, 16, 16, 1, 64)),  # 512
)

# seconds of a step and bytes of a rank
Answer = tuple[float, float]
Evaluate = Callable[[Configuration], Answer]


@dataclass(frozen=True)
class PeerRate:
    """Evaluations by a peer within so many CPU seconds of one process; `what` says how many of CONFIGURATIONS it accepts, and what of them."""

    name: str
    version: str
    configurations: int
    seconds: float
    what: str

    @property
    def per_second(self) -> float:
        return self.configurations / self.seconds


@dataclass(frozen=True)
class _Peer:
    """A peer by its authors' name, its import and pip names, the version whose interface is called, and what it leaves out."""

    name: str
    package: str
    distribution: str
    known: str
    what: str
    prepare: Callable[[], tuple[Evaluate, tuple[type[Exception], ...]]]


def peer_rates(seconds: float = 5.0) -> tuple[list[PeerRate], list[str]]:
    """Rates of the peers that can be imported, each measured for so many CPU seconds, and a sentence for each other one."""
    rates, missing = [], []
    for peer in _PEERS:
        with silence():
            found = _measured(peer, seconds)
        if isinstance(found, PeerRate):
            rates.append(found)
        else:
            missing.append(found)
    return rates, missing


def _measured(peer: _Peer, seconds: float) -> PeerRate | str:
    of = len(CONFIGURATIONS)
    try:
        import_module(peer.package)
        evaluate, refusals = peer.prepare()
        accepted, refusal = _accepted(evaluate, refusals)
        if not accepted:
            return f"{peer.name} {_version(peer)} is not timed: it refuses all {of} configurations ({line_of(refusal)}); known here: {peer.known}"
        count, spent = _repeated(evaluate, accepted, seconds)
    except ModuleNotFoundError as error:
        absent = "is installed or on PYTHONPATH" if error.name == peer.package else "is there, which it imports"
        return f"{peer.name} is not timed: no module {error.name} {absent}; known here: {peer.known}"
    except Exception as error:  # another version, or another package of this name, may fail in any way
        return f"{peer.name} {_version(peer)} is not timed: its interface is another ({line_of(error)}); known here: {peer.known}"
    return PeerRate(peer.name, _version(peer), count, spent, f"{len(accepted)} of {of} configurations, {peer.what}")


def _accepted(evaluate: Evaluate, refusals: tuple[type[Exception], ...]) -> tuple[list[Configuration], Exception | None]:
    """Configurations that the peer takes, and its last refusal; not timed, so that whatever is loaded once is loaded before."""
    accepted, refusal = [], None
    for configuration in CONFIGURATIONS:
        try:
            answer = evaluate(configuration)
        except refusals as error:
            refusal = error
            continue
        if min(answer) <= 0:
            raise ValueError(f"step time and memory of {configuration} are {answer}")
        accepted.append(configuration)
    return accepted, refusal


def _repeated(evaluate: Evaluate, configurations: list[Configuration], seconds: float) -> tuple[int, float]:
    """Evaluations made and CPU seconds spent: whole rounds, so that every configuration counts alike."""
    count, start = 0, time.process_time()
    while True:
        for configuration in configurations:
            evaluate(configuration)
        count += len(configurations)
        spent = time.process_time() - start
        if spent >= seconds:
            return count, max(spent, 1e-9)


def line_of(error: Exception | None) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 160 else text[:157] + "..."


def _version(peer: _Peer) -> str:
    # the module's own comes first: a checkout on PYTHONPATH hides what is installed
    for module in (peer.package, f"{peer.package}.version"):
        with contextlib.suppress(Exception):
            return str(import_module(module).__version__)
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(peer.distribution)
    return "(version not stated)"


class _Nowhere(io.TextIOBase):
    """A stream that keeps nothing and stays open: a peer's log handlers hold on to the stream that they find."""

    def write(self, text: str) -> int:
        return len(text)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Neither prints, nor warnings, nor log records; their settings are put back."""
    nowhere, disabled = _Nowhere(), logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _simumax() -> tuple[Evaluate, tuple[type[Exception], ...]]:
    config, perf = import_module("simumax.core.config"), import_module("simumax.core.perf_llm")
    system, model = config.SystemConfig.init_from_dict(simumax_system()), config.ModelConfig.init_from_dict(simumax_model())

    def evaluate(configuration: Configuration) -> Answer:
        tp, pp, dp, b, m = configuration
        strategy = config.StrategyConfig.init_from_dict(
            {
                "seq_len": SEQUENCE,
                "micro_batch_size": b,
                "micro_batch_num": m,
                "world_size": tp * pp * dp,
                "tp_size": tp,
                "pp_size": pp,
                "enable_sequence_parallel": True,
                "zero_state": 1,
                "enable_recompute": False,
            }
        )
        peer = perf.PerfLLM()
        peer.configure(strategy_config=strategy, model_config=model, system_config=system)
        peer.run_estimate()
        memory, cost = peer.analysis_mem().data, peer.analysis_cost().data
        # it gives time and bytes as texts for people; its tokens a second and rank are a number
        stages = [memory] if "peak_mem" in memory else memory.values()
        return SEQUENCE * b * m / (tp * pp) / cost["throughput_per_accelerator"], max(_bytes(stage["peak_mem"]) for stage in stages)

    return evaluate, (AssertionError, ValueError, NotImplementedError)


def _bytes(text: str) -> float:
    """Bytes of SimuMax's '66.44 GB', which are GiB."""
    number, unit = text.split()
    return float(number) * 2.0 ** {"B": 0, "KB": 10, "MB": 20, "GB": 30, "TB": 40}[unit]


def _calculon() -> tuple[Evaluate, tuple[type[Exception], ...]]:
    calculon = import_module("calculon")
    llm, log = calculon.Llm, logging.getLogger("calculon")
    system = calculon.System(calculon_system())
    shape = {"hidden": HIDDEN, "feedforward": FFN, "seq_size": SEQUENCE, "attn_heads": HEADS, "attn_size": HIDDEN // HEADS, "num_blocks": LAYERS}
    application = llm.Application(shape)

    def evaluate(configuration: Configuration) -> Answer:
        tp, pp, dp, b, m = configuration
        execution = llm.Execution.from_json(
            {
                "num_procs": tp * pp * dp,
                "tensor_par": tp,
                "pipeline_par": pp,
                "data_par": dp,
                "tensor_par_net": 0,
                "pipeline_par_net": 1,
                "data_par_net": 1,
                "batch_size": b * m * dp,
                "microbatch_size": b,
                "datatype": "bfloat16",
                "fused_activation": True,
                "attention_type": "multihead",
                "activation_recompute": "attn_only",  # the scores, which a fused kernel does not keep either
                "pipeline_interleaving": 1,
                "optimizer_sharding": dp > 1,
                "tensor_par_comm_type": "rs_ag",
                "tensor_par_overlap": "none",
                "seq_par_ag_redo": True,
                "data_par_overlap": False,
                "weight_offload": False,
                "activations_offload": False,
                "optimizer_offload": False,
                "training": True,
            }
        )
        peer = llm(application, log)
        peer.compile(system, execution)
        peer.run(system)
        return peer.get_total_time(), peer.get_mem_tier1_cap_req()

    return evaluate, (llm.Error, AssertionError)


def _llm_analysis() -> tuple[Evaluate, tuple[type[Exception], ...]]:
    config, analysis = import_module("llm_analysis.config"), import_module("llm_analysis.analysis")
    model = config.ModelConfig(
        name="llama3-70b",
        num_layers=LAYERS,
        n_head=HEADS,
        hidden_dim=HIDDEN,
        vocab_size=VOCABULARY,
        max_seq_len=SEQUENCE,
        num_key_value_heads=KV_HEADS,
        ffn_embed_dim=FFN,
        mlp_gated_linear_units=True,
    )
    gpu = config.GPUConfig(
        name="h100-sxm",
        mem_per_GPU_in_GB=MEMORY / 2**30,
        hbm_bandwidth_in_GB_per_sec=MEMORY_BANDWIDTH / 1e9,
        intra_node_bandwidth_in_GB_per_sec=NVLINK / 1e9,
        intra_node_min_message_latency=0.0,
        peak_fp16_TFLOPS=PEAK / 1e12,
        inter_node_bandwidth_in_GB_per_sec=NIC / 1e9,
    )

    def evaluate(configuration: Configuration) -> Answer:
        tp, pp, dp, b, m = configuration
        mesh = config.ParallelismConfig(tp_size=tp, pp_size=pp, dp_size=dp, sp_size=tp)
        peer = analysis.LLMAnalysis(model, gpu, config.DtypeConfig(), mesh)
        answer = peer.training(batch_size_per_gpu=b, gradient_accumulation_steps=m, seq_len=SEQUENCE, ds_zero=analysis.DSZeRO.STAGE_1)
        return answer["latency_per_iter"], answer["estimated_peak_memory_per_gpu"]

    return evaluate, (AssertionError, ValueError)


_PEERS = (
    _Peer("SimuMax", "simumax", "simumax", "v1.2 of github.com/MooreThreads/SimuMax, as a checkout", "the whole model", _simumax),
    _Peer(
        "Calculon",
        "calculon",
        "calculon",
        "0.1.0 of github.com/calculon-ai/calculon, which is not the calculon of PyPI",
        "its blocks alone, with multi-head attention and an ungated MLP",
        _calculon,
    ),
    _Peer(
        "llm-analysis",
        "llm_analysis",
        "llm-analysis",
        "github.com/cli99/llm-analysis at d841e40, which is later than 0.2.2 of PyPI",
        "without pipeline bubble, messages between stages and gradient reduction",
        _llm_analysis,
    ),
)
