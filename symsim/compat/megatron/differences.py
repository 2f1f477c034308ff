"""What Megatron-LM (git d98e8a64) does otherwise where it estimates itself, a row each. Places are files under megatron/training."""

from __future__ import annotations

from fractions import Fraction

from symsim.algebra.expr import ZERO, Expr, Number, product
from symsim.compat.compare import Measure
from symsim.compat.difference import Difference, Question
from symsim.compat.megatron.shard import DEPTH_NORMS, LATENT_NORMS, UNCOUNTED, Shard
from symsim.errors import InputError
from symsim.evaluation.numbers import Evaluation
from symsim.frameworks.kernels import Profile
from symsim.inputs.conventions import last_part
from symsim.ir.operations import Attention, Norm
from symsim.lowering.communicate import Placed

FLOPS, STATIC, ACTIVATIONS = "model FLOPs", "model states", "activations"
_SOURCE, _MEMORY = "training.py num_floating_point_operations", "theoretical_memory_usage.py compute_weight_and_optimizer_memory"
_UNCOUNTED = {
    "biases": "linear maps have the biases of the model",
    "positions": "learned positions are parameters",
    "head-norms": "norms of queries and keys are parameters",
    "depths": "a depth of multi-token prediction has two norms, a projection and a last norm besides its layer",
}


def _model_flops(at: Evaluation) -> tuple[Number, ...]:
    return ((at.numbers["F"] + at.numbers["G"]) * at.strategy.microbatches * at.strategy.dp,)


def _static(at: Evaluation) -> tuple[Number, ...]:
    first = at.stage_numbers(at.stages[0])
    return (first["M_stage_weights"] + first["M_stage_gradients"] + first["M_stage_optimizer"],)


def _activations(at: Evaluation) -> tuple[Number, ...]:
    return (at.stage_numbers(at.stages[0])["M_stage_activations"],)


# of all tokens of a step, and of a rank of the first stage
MEASURES = {FLOPS: Measure(_model_flops, "FLOP"), STATIC: Measure(_static, "byte"), ACTIVATIONS: Measure(_activations, "byte")}


def differences(question: Question) -> tuple[Difference, ...]:
    """The rows that concern a job. InputError for layers that Megatron-LM counts in another function."""
    kinds = [question.model.layer_kinds[kind] for kind in question.model.kind_names()]
    if question.model.attention.kind not in ("gqa", "mla") or any(kind.mixer != "attention" for kind in kinds):
        raise InputError(f"--compat megatron: {question.model.name} has layers without attention, whose count (hybrid_flops) is not compared")
    return (*_flops(question), *_memory(question))


def _flops(question: Question) -> list[Difference]:
    model = question.model
    found = [
        Difference("causal-half", "attention as assume.causal has it", "half of the scores", _SOURCE, (FLOPS,), assumptions={"causal": "half"}),
        Difference(
            "attention-backward",
            "flash attention computes its scores again in backward",
            "twice forward, as every product",
            _SOURCE,
            (FLOPS,),
            {"attention_backward": Fraction(2)},
        ),
    ]
    if any(model.layer_kinds[kind].reach not in ("all", "both") for kind in model.kind_names()):
        row = {"whole": {"attention": _all_scores}}
        found.append(Difference("windows", "a window counts its keys", "every layer sees all", _SOURCE, (FLOPS,), row))
    if model.moe is not None:
        rules = dict.fromkeys(("router", "shared_expert_gate"), _nothing)
        found.append(
            Difference("router", "the router and the gate of shared experts are products", "neither is counted", _SOURCE, (FLOPS,), {"whole": rules})
        )
    if model.attention.kind == "mla" or model.mtp_num_layers:
        why = "those of latents and of multi-token prediction count as a row of a product"
        found.append(Difference("norms", "norms are no products", why, _SOURCE, (FLOPS,), {"whole": {"norm": _as_row}}))
    return found


def _nothing(placed: Placed, index: int, phase: str, profile: Profile) -> Expr:
    return ZERO


def _all_scores(placed: Placed, index: int, phase: str, profile: Profile) -> Expr | None:
    """Forward alone: backward is a multiple of it."""
    block, at = placed.block, placed.block.ops[index].of(Attention)
    if phase != "forward":
        return None
    rows = product(block.dims[d].whole_model for d in ("b", "s", at.heads))
    return rows * block.dims["s"].whole_model * (block.dims[at.key_dim].whole_model + block.dims[at.value_dim].whole_model)


def _as_row(placed: Placed, index: int, phase: str, profile: Profile) -> Expr | None:
    """2 FLOP an element, forward and for each of two gradients."""
    op = placed.block.ops[index]
    if last_part(op.name) not in LATENT_NORMS and op.name not in DEPTH_NORMS:
        return None
    size = product(placed.block.dims[d].whole_model for d in ("b", "s", *op.of(Norm).over))
    return (2 if phase == "forward" else 4) * size


def _memory(question: Question) -> list[Difference]:
    shard = Shard(question)
    found = [
        Difference(name, _UNCOUNTED[name], "they are left out", _MEMORY, (STATIC,), {"uncounted": {name: rule}}) for name, rule in UNCOUNTED.items()
    ]
    held = {"weights": shard.weights, "gradients": shard.gradients, "optimizer": shard.optimizer}
    found.append(
        Difference(
            "most-loaded-shard",
            "what the first stage holds, its states sharded over data and context ranks",
            "1/pp of the layers and of the last norm, all depths of multi-token prediction, 6 + 12 / dp bytes or 18; latents in tp shares",
            _MEMORY,
            (STATIC,),
            {"held": held},
        )
    )
    found.append(
        Difference(
            "second-table",
            "what every kernel of the model keeps, and what runs again",
            "s b h (18 + 4 f / h) / tp a layer under sequence parallelism and selective recomputation, else s b h (10 + 24 / tp) and a twentieth",
            "theoretical_memory_usage.py compute_activation_memory, compute_activation_memory_without_sp",
            (ACTIVATIONS,),
            {"held": {"activations": shard.activations}},
        )
    )
    return found
