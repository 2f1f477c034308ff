"""What one rank of a pipeline stage sends and receives: the messages of its blocks, of the pipeline, and of the step."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from symsim.evaluation import Evaluation
from symsim.expr import ONE, ZERO, Number, expr, symbol
from symsim.messages import Message, merge
from symsim.passes.reduce import (
    expert_groups,
    fsdp_messages,
    fsdp_units,
    pipeline_messages,
    scaled,
    step_messages,
    tensor_parallel_gradients,
)
from symsim.stages import Stage, holds, runs


def stage_messages(result: Evaluation, stage: Stage) -> list[Message]:
    """All messages of one rank of a stage, equal calls merged."""
    lowered, at = result.lowered, result.stage_values(stage)
    made: list[Message] = []
    for name, block in lowered.blocks.items():
        times = int(at[runs(name)])
        again = int(at.get(f"L_{name}_ckpt_i", 0)) if name in lowered.checkpointed else 0
        for variant, n in ((block, times - again), (lowered.checkpointed.get(name), again)):
            if variant is not None and n:
                both = [*variant.differentiated.forward_messages, *variant.backward_messages]
                made += scaled([m for _, m in both], expr(n))
    if result.strategy.pp > 1:
        # at the turn of a V one rank holds two chunks in a row, and nothing is sent between them
        chunks = len(stage.chunks) - sum(a.last == b.first for a, b in pairwise(stage.chunks))
        made += pipeline_messages(lowered, chunks - stage.loss, chunks - stage.embedding)
    made += fsdp_messages(lowered, fsdp_units(lowered, result.derivation, {n: expr(v) for n, v in at.items()}))
    made += _gradient_messages(result, at)
    made += _tied_embedding(result, stage, at)
    made += _router_bias(result, at)
    return merge(made)


def _gradient_messages(result: Evaluation, at: Mapping[str, Number]) -> list[Message]:
    """Gradients over data ranks, and of parameters that saw only a share of the tokens over tensor ranks."""
    lowered = result.lowered
    held = {s: expr(n) for s, n in at.items()}
    dense, expert = (result.derivation.definitions[f"P_stage_{k}"].expr.substitute(held) for k in ("dense", "expert"))
    if not expert_groups(lowered):
        dense, expert = dense + expert, ZERO
    made = step_messages(lowered, dense, expert)
    if lowered.mesh.active("tp"):
        n = sum((tensor_parallel_gradients(lowered, b) * int(at[holds(b)]) for b in lowered.blocks), ZERO)
        if n:
            what = "gradients of parameters that saw a share of the tokens"
            made.append(Message("step", "all_reduce", "tp", symbol("tp"), n, n, _gradient_type(result), what, per="step"))
    return made


def _gradient_type(result: Evaluation) -> str:
    return "fp32" if result.strategy.grad_reduce_in_fp32 else result.strategy.precision


def _tied_embedding(result: Evaluation, stage: Stage, at: Mapping[str, Number]) -> list[Message]:
    """Stages that hold a copy of one table sum its gradient (Megatron-Core finalize_model_grads.py)."""
    copies = result.embedding_copies
    holds = at["embedding_i"] or (stage.loss and result.model.tie_word_embeddings)
    if copies < 2 or not holds:
        return []
    n = symbol("V") * symbol("h") / result.lowered.mesh.degree("tp")
    what = "gradient of the embedding table that several stages hold"
    return [Message("step", "all_reduce", "embd", expr(copies), n, n, _gradient_type(result), what, per="step")]


def _router_bias(result: Evaluation, at: Mapping[str, Number]) -> list[Message]:
    """Tokens per expert of all layers of the stage, for the selection bias (Megatron-Core moe_utils.py)."""
    model, mesh = result.model, result.lowered.mesh
    group = mesh.group(("tp", "dp", *mesh.context_axes))
    layers = sum(int(at[f"L_{k}_i"]) for k in model.kind_names() if model.layer_kinds[k].ffn == "moe")
    if model.moe is None or model.moe.moe_router_enable_expert_bias == "none" or not layers or group == ONE:
        return []
    n = symbol("E") * layers
    return [Message("step", "all_reduce", "tp_dp_cp", group, n, n, "fp32", "tokens per expert for the router bias", per="step")]
