"""What of a Calculon job its differences depend on: keys of its execution where it was imported from them, else what follows from the strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from symsim.compat.difference import Question
from symsim.errors import InputError

Messages = Literal["ar", "p2p_rs_ag", "rs_ag"]

_WIDTHS = {"float8": 1, "float16": 2, "bfloat16": 2, "float32": 4}
_TYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


@dataclass(frozen=True)
class Settings:
    """An execution of Calculon. datatype: of every tensor; messages: of tensor ranks; redone: gathers run again; nets: the tiers of tensor,
    pipeline and data ranks; offloaded: of weights, activations, optimizer."""

    datatype: str
    messages: Messages
    redone: bool
    beside: Literal["none", "ring", "pipe"]
    recompute: Literal["none", "attn_only", "full"]
    multiquery: bool
    fused: bool
    chunks: int
    sharded: bool
    data_beside: bool
    offloaded: tuple[bool, bool, bool]
    training: bool
    nets: tuple[int, int, int]

    @property
    def width(self) -> int:
        """Bytes of an element of any tensor but a mask."""
        return _WIDTHS[self.datatype]

    @property
    def gathers_attention(self) -> bool:
        """Whether attention's input is gathered again for backward."""
        return self.recompute != "none" or self.redone

    @property
    def gathers_network(self) -> bool:
        return self.recompute == "full" or self.redone


def settings_of(question: Question) -> Settings:
    """InputError for a job that has no blocks of Calculon's."""
    _refuse(question)
    strategy = question.strategy
    given = question.given.get("execution", {})
    scattered = question.assumptions.get("pipeline_scatter_gather") == "true"
    again: Literal["none", "attn_only", "full"] = {"none": "none", "full": "full"}.get(strategy.recompute, "attn_only")  # type: ignore[assignment]
    datatype = "float8" if strategy.fp8 != "none" else _TYPES[strategy.precision]
    kept = question.assumptions.get("save_gathered") == "true"
    return Settings(
        given.get("datatype", datatype),
        given.get("tensor_par_comm_type", "rs_ag" if strategy.sp else "p2p_rs_ag" if scattered else "ar"),
        bool(given.get("seq_par_ag_redo", strategy.sp and not kept and again != "full")),
        given.get("tensor_par_overlap", "ring" if strategy.tp_comm_overlap else "none"),
        given.get("activation_recompute", again),
        question.model.query_groups == 1 and question.model.attention.num_attention_heads > 1,
        bool(given.get("fused_activation", False)),
        int(given.get("pipeline_interleaving", strategy.vpp)),
        bool(given.get("optimizer_sharding", strategy.zero >= 1 and strategy.dp > 1)),
        bool(given.get("data_par_overlap", strategy.overlap_grad_reduce)),
        tuple(bool(given.get(f"{what}_offload", False)) for what in ("weight", "activations", "optimizer")),  # type: ignore[arg-type]
        bool(given.get("training", True)),
        tuple(int(given.get(f"{axis}_par_net", 0)) for axis in ("tensor", "pipeline", "data")),  # type: ignore[arg-type]
    )


def _refuse(question: Question) -> None:
    model, strategy = question.model, question.strategy
    heads = model.attention.num_attention_heads
    unlike = {
        "mixture-of-experts layers": model.moe is not None,
        "layers of several kinds": len(model.kind_names()) > 1,
        "gated networks": model.mlp is not None and model.mlp.gated,
        f"{model.attention.kind} attention": model.attention.kind != "gqa",
        f"{model.query_groups} query groups (one, or as many as heads)": model.query_groups not in (1, heads),
        "context parallelism": strategy.cp > 1,
        f"norms of the kind {model.normalization}": model.normalization != "LayerNorm",
    }
    found = next((what for what, is_so in unlike.items() if is_so), None)
    if found is not None:
        raise InputError(f"--compat calculon: {model.name} has {found}, and Calculon knows GPT's block alone")
