"""The frameworks that ship: `te`, Megatron-Core with TransformerEngine, `eager`, Hugging Face modules under PyTorch, and `compile`, the same
under torch.compile.

A further framework is a further row: its kernels (`frameworks/fuse_te.py`, `frameworks/fuse_eager.py` are the patterns) and its choices.
Read at Megatron-Core 0.20, TransformerEngine 2.20, PyTorch 2.13, transformers 5.23, torchtitan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from symsim.frameworks import fuse_compiled, fuse_eager, fuse_te
from symsim.frameworks.framework import Framework, Ring
from symsim.inputs.strategy import Strategy
from symsim.inputs.traced import once

# Kernels that one operation issues where it is not one kernel, forward and backward: unfused rotary embedding
# (models/common/embeddings/rope_utils.py), router (moe_utils.py topk_routing_with_score_function), token permutation and
# the loss (tensor_parallel/cross_entropy.py), counted in Megatron-Core 0.20; a norm's and attention's backward have two and three
LAUNCHES: dict[str, tuple[int, int]] = {
    "rope": (6, 6),
    "top_k": (18, 10),
    "z_loss": (12, 9),
    "permute": (8, 4),
    "unpermute": (4, 4),
    "exchange": (4, 4),
    "exchange_back": (4, 4),
    # the layout, what arrives where, the exchange (DeepEP deep_ep/buffer.py, get_dispatch_layout and dispatch); the handle serves the rest
    "exchange_fused": (3, 1),
    "cross_entropy": (12, 4),
    "embed": (4, 2),
    "clamp": (1, 3),
    "norm": (1, 2),
    "attention": (1, 3),
}

TE = Framework(
    name="te",
    lowerings=fuse_te.LOWERINGS,
    ring=Ring(),  # TransformerEngine context_parallel.py AttnFuncWithCPAndKVP2P: c - 1 steps each way
    counts="all_gather",  # transformer/moe/token_dispatcher.py: every rank's counts over etp and ep
    unreduced=frozenset({"rotary_key"}),  # multi_latent_attention.py: the rotary key's gradient without sequence parallelism
    main_gradients=True,  # distributed/param_and_grad_buffer.py
    placeholders=True,  # TransformerEngine module/base.py get_dummy_wgrad
    launches=LAUNCHES,
    losses_in_kernels=("unfused",),  # tensor_parallel/cross_entropy.py
    reduces_beside=True,  # tensor_parallel/layers.py LinearWithGradAccumulationAndAsyncCommunication
    unadapted=frozenset({"lm_head", "router", "shared_expert_gate", "fn"}),  # no linear modules of their own: moe/router.py, shared_experts.py
    fp8=True,
    state_types=False,  # optimizer/optimizer_config.py
)

EAGER = Framework(
    name="eager",
    lowerings=fuse_eager.LOWERINGS,
    # torch.distributed.tensor.experimental._context_parallel: gradients in fp32, in c steps
    ring=Ring(gathers=True, returns=True, gradient_dtype="fp32"),
    counts="all_to_all",  # torchtitan's dispatcher
    keeps_gathered=True,  # DTensor keeps what it gathered
    stops_early=True,  # torch.utils.checkpoint early_stop
    checkpoints_ask=True,  # transformers modeling_utils.py activation_checkpointing_enable: enable_input_require_grads
    main_gradients=False,  # torch autograd AccumulateGrad
    returns_logits=True,  # CausalLMOutputWithPast
    op_by_op=True,  # torch/nn/modules/module.py _call_impl
    adapts_experts=False,  # transformers 5: experts' weights are one parameter, no nn.Linear (peft tuners/tuners_utils.py all-linear)
)

# torch/_inductor/scheduler.py: elementwise operations behind a product are one kernel
COMPILED = replace(EAGER, name="compile", lowerings=fuse_compiled.LOWERINGS, scales_as_it_adds=True, op_by_op=False)

FRAMEWORKS = {framework.name: framework for framework in (TE, EAGER, COMPILED)}


@once
def framework_of(strategy: Strategy, assumptions: Mapping[str, str]) -> Framework:
    """The strategy's framework, with what the assumptions say otherwise."""
    own, assume = FRAMEWORKS[strategy.fusion], assumptions

    def decided(name: str, by_profile: bool) -> bool:
        return by_profile if assume[name] == "profile" else assume[name] == "true"

    return replace(
        own,
        lowerings={**own.lowerings, **{name: fuse_eager.FUSED[name] for name in strategy.fused_kernels}},
        launches={**own.launches, "rope": (1, 1)} if own.launches and assume["apply_rope_fusion"] == "true" else own.launches,
        shares_redistributions=assume["shared_redistribution"] == "true",
        ring=replace(own.ring, gathers=own.ring.gathers and strategy.cp > 1 and strategy.cp_comm_type == "all_gather"),
        counts="" if assume["dispatcher_metadata"] == "omitted" else own.counts,
        unrecorded=own.unrecorded if strategy.dsa_indexer_loss == "none" else frozenset(),
        unreduced=own.unreduced if own.unreduced and not strategy.sp and assume["mla_k_pe_gradient"] == "omitted" else frozenset(),
        keeps_gathered=decided("save_gathered", own.keeps_gathered),
        stops_early=decided("recompute_early_stop", own.stops_early),
        placeholders=own.placeholders and strategy.gradient_accumulation_fusion and assume["te_dummy_wgrad"] == "true",
        reduces_beside=own.reduces_beside and assume["tp_async_backward"] == "true",
    )
