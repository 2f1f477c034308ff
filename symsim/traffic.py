"""What one rank of a pipeline stage sends and receives: the messages of its blocks, of the pipeline, and of the step."""

from __future__ import annotations

from collections.abc import Mapping

from symsim.evaluation import Evaluation
from symsim.expr import ONE, ZERO, Expr, Number, expr, symbol
from symsim.messages import Message, merge
from symsim.passes.count import MODULES
from symsim.passes.reduce import Unit, expert_groups, fsdp_messages, pipeline_messages, scaled, step_messages, tensor_parallel_gradients
from symsim.stages import Stage

# Which symbol of a stage says how often it runs, or holds, a block that is no layer.
RUNS = {"embedding": "first_i", "head": "loss_i", "mtp": "mtp_i"}
HOLDS = {"embedding": "embedding_i", "head": "last_layer_i", "mtp": "mtp_copies_i"}


def stage_messages(result: Evaluation, stage: Stage) -> list[Message]:
    """All messages of one rank of a stage, equal calls merged."""
    lowered, at = result.lowered, result.stage_values(stage)
    made: list[Message] = []
    for name, block in lowered.blocks.items():
        times = int(at[RUNS.get(name, f"L_{name}_i")])
        again = int(at.get(f"L_{name}_ckpt_i", 0)) if name in lowered.checkpointed else 0
        for variant, n in ((block, times - again), (lowered.checkpointed.get(name), again)):
            if variant is not None and n:
                both = [*variant.differentiated.forward_messages, *variant.backward_messages]
                made += scaled([m for _, m in both], expr(n))
    if result.strategy.pp > 1:
        chunks = len(stage.chunks)
        made += pipeline_messages(lowered, chunks - stage.loss, chunks - stage.embedding)
    made += fsdp_messages(lowered, fsdp_units(result, at))
    made += _gradient_messages(result, at)
    made += _tied_embedding(result, stage, at)
    made += _router_bias(result, at)
    return merge(made)


def fsdp_units(result: Evaluation, at: Mapping[str, Number]) -> list[Unit]:
    """FSDP wraps every layer, experts with a group of their own apart, and what is left as one root unit."""
    own = result.derivation.definitions
    apart = expert_groups(result.lowered)

    def held(block: str, expert: bool | None = None) -> Expr:
        modules = [m for m in MODULES if f"P_{block}_{m}" in own and (expert is None or (m == "experts") == expert)]
        return sum((symbol(f"P_{block}_{m}") for m in modules), ZERO)

    units = []
    for kind in result.model.kind_names():
        times = expr(at[f"L_{kind}_i"])
        units.append(Unit(f"{kind} layer", held(kind, expert=False if apart else None), times))
        if apart:
            units.append(Unit(f"experts of a {kind} layer", held(kind, expert=True), times, expert=True))
    root = held("embedding") * at["embedding_i"] + symbol("P_output") * at["output_i"]
    if "P_head_norm" in own:
        root = root + symbol("P_head_norm") * at["last_layer_i"]
    if "mtp" in result.lowered.blocks:
        root = root + held("mtp") * at["mtp_copies_i"]
    return [u for u in (*units, Unit("root", root, ONE)) if u.elements and u.times]


def _gradient_messages(result: Evaluation, at: Mapping[str, Number]) -> list[Message]:
    """Gradients over data ranks, and of parameters that saw only a share of the tokens over tensor ranks."""
    lowered = result.lowered
    held = {s: expr(n) for s, n in at.items()}
    dense, expert = (result.derivation.definitions[f"P_stage_{k}"].expr.substitute(held) for k in ("dense", "expert"))
    if not expert_groups(lowered):
        dense, expert = dense + expert, ZERO
    made = step_messages(lowered, dense, expert)
    if lowered.mesh.active("tp"):
        n = sum((tensor_parallel_gradients(lowered, b) * int(at[HOLDS.get(b, f"L_{b}_i")]) for b in lowered.blocks), ZERO)
        if n:
            what = "gradients of parameters that saw a share of the tokens"
            made.append(Message("step", "all_reduce", "tp", symbol("tp"), n, n, _gradient_type(result), what, per="step"))
    return made


def _gradient_type(result: Evaluation) -> str:
    return "fp32" if result.strategy.grad_reduce_in_fp32 else result.strategy.precision


def _tied_embedding(result: Evaluation, stage: Stage, at: Mapping[str, Number]) -> list[Message]:
    """Stages that hold a copy of one table sum its gradient (Megatron-Core finalize_model_grads.py)."""
    copies = sum(s.embedding or bool(s.mtp) or (s.loss and result.model.tie_word_embeddings) for s in result.stages)
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
