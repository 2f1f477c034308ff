"""What benchmarks are given: models with axes of grids, how much is done, and what the machine does at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FITS = "memory.peak <= memory.capacity"
# of an expression the least is best: seconds of all ranks for a token
BEST = "world/tokens_per_second"
ASKED = ("time.step", "memory.peak", "tokens_per_second", "mfu")


@dataclass(frozen=True)
class Model:
    """A model, a strategy of it with more than one rank along each of its axes, and axes of grids: of degrees, and of sizes."""

    name: str
    strategy: str
    degrees: tuple[str, ...]
    sizes: tuple[str, ...]


DEEPSEEK = Model(
    "deepseek-v3",
    "tp=8,pp=4,ep=8,dp=16,sp=true,num_microbatches=32",
    ("tp=2,4,8", "cp=2,4", "pp=2,4,8,16", "vpp=2,3", "ep=8,16,32,64", "dp=8,16,32,64,128", "sp==tp>1"),
    ("micro_batch_size=1:16", "num_microbatches=16:1680:16", "seq_length=1024:65536:1024"),
)
LLAMA = Model(
    "llama3-70b",
    "tp=8,pp=4,dp=16,sp=true,num_microbatches=32",
    ("tp=2,4,8", "cp=2,4", "pp=2,4,8,16", "vpp=2,3", "dp=8,16,32,64,128", "sp==tp>1"),
    ("micro_batch_size=1:16", "num_microbatches=16:3360:16", "seq_length=1024:131072:1024"),
)


@dataclass(frozen=True)
class Setting:
    """How much is done. The first of the models is the one of the benchmarks that have one only.

    seconds: for which a short measurement is repeated, its least time being the figure. stream_bytes: of memory that no cache holds.
    search, process: axes of sizes of the grids that are searched by bounds and by `symsim sweep`. rounds: runs of `symsim sweep`.
    options, further: axes of a grid of options, of the last of the models; options_base: the strategy that they change.
    """

    models: tuple[Model, ...] = (DEEPSEEK, LLAMA)
    system: str = "h100-sxm"
    seconds: float = 0.4
    stream_bytes: int = 1 << 28
    workload_blocks: int = 2048
    top: int = 10
    search: tuple[str, ...] = ("micro_batch_size=1:16", "num_microbatches=16:17600:16", "seq_length=1024:65536:1024")
    search_top: int = 100
    process: tuple[str, ...] = ("micro_batch_size=1:8", "num_microbatches=16:480:16", "seq_length=1024:40960:1024")
    options_base: str = "global_batch_size=256"
    options: tuple[str, ...] = (
        "world=128",
        "tp=1:16:*2",
        "pp=1:16:*2",
        "vpp=1,2,4",
        "cp=1,2,4",
        "micro_batch_size=1,2,4",
        "recompute=none,selective,full",
        "zero=0,1",
        "sp==tp>1",
        "tp_comm_overlap=false,true",
        "overlap_grad_reduce=false,true",
        "overlap_param_gather=false,true",
    )
    further: str = "overlap_p2p_comm=false,true"
    rounds: int = 2
    peer_seconds: float = 5.0
    peer_sequences: int = 1024


FULL = Setting()


@dataclass(frozen=True)
class Limits:
    """What this machine does at most, a second, on one core and on all at once: bytes read and written, operations of NumPy and of
    compiled code."""

    one: Mapping[str, float]
    every: Mapping[str, float]
    cores: int

    def visits(self, backend: str, used: int, operations: float) -> float | None:
        """How often a second so many operations are done at most, on one core or on all; None where that was not measured."""
        rate = {"numpy": "multiply and add", "c": "compiled"}[backend]
        most = (self.one if used == 1 else self.every).get(rate)
        return None if most is None or not operations else most / operations


@dataclass(frozen=True)
class Bench:
    setting: Setting
    limits: Limits
