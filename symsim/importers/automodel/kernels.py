"""Which kernels an Automodel recipe runs: Transformer Engine's, Liger's, or modules op by op; its exchange of tokens, and its loss.

What the keys do: Automodel 36044ad3, components/models/common/utils.py BackendConfig, _transformers/auto_model.py, kernel_patches.py,
components/moe/layers.py, components/loss/masked_ce.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symsim.importers.keys import Entry, Keys
from symsim.importers.losses import FUSED, liger_modules

if TYPE_CHECKING:
    from symsim.inputs.architecture import Architecture

# a switch of its own until 2026-05, which decides where it is there
_OLDER = "model.backend.enable_deepep"
_LIGER = "model.use_liger_kernel"
_DISPATCHERS = {"torch": None, "deepep": "deepep", "uccl_ep": "deepep", "hybridep": "hybridep", "mok": "mok"}
_PIECES = "fp32 copies of the logits of a chunk at a time, kept in 2 bytes each: up to 8 of 12 bytes a logit less at the peak"
# by model_type: models with code of their own there (_transformers/registry.py), whose projections are PyTorch's, or a backend's
_OWN_DENSE = frozenset("llama qwen2 qwen3 ministral3 qwen3_5_text".split())
_OWN = _OWN_DENSE | frozenset(
    """deepseek_v3 deepseek_v32 ernie4_5_moe gemma4_text gemma4_unified_text glm4_moe glm4_moe_lite glm_moe_dsa gpt_oss kimi_linear mimo_v2_flash
    minimax_m2 nemotron_h qwen3_5_moe_text qwen3_moe qwen3_next""".split()
)
# Liger-Kernel 00218a06 transformers/monkey_patch.py MODEL_TYPE_TO_APPLY_LIGER_FN, those with all of these kernels
_OF_LIGER = frozenset(
    "exaone4 gemma gemma2 gemma3_text glm4 gpt_oss granite llama llama4_text mistral mixtral olmo2 olmo3 phi3 qwen2 qwen3 qwen3_moe smollm3".split()
)


def kernels(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], architecture: "Architecture | None") -> None:
    """Transformer Engine's kernels where a backend asks for them, else modules op by op."""
    mixture = architecture is None or architecture.moe is not None
    forced = keys.flag("model.force_hf", False, to="fusion")
    own = architecture is not None and architecture.modelling in _OWN and not forced
    backed = own and architecture is not None and architecture.modelling not in _OWN_DENSE
    linear = keys.choice("model.backend.linear", {name: name for name in ("te", "torch", "quack")}, None, to="fusion")
    core = str(keys.text("model.backend.attn", "", to="assume.attention_kernel"))
    keys.text("model.backend.rms_norm", "", to="fused_kernels", why="one kernel each: compiled, PyTorch's own, or Transformer Engine's")
    asked = str(keys.text("model.attn_implementation", "", to="assume.attention_kernel"))
    for name in ("model.config._attn_implementation", "model.config.attn_implementation_new"):
        keys.text(name, "", to="assume.attention_kernel")
    by_default = backed and linear is None and not core
    strategy["fusion"] = "te" if "te" in (linear, core) or by_default else "eager"
    if by_default:
        keys.rows["backend"] = Entry("backend", "(default)", "derived", "fusion", "te: a backend's default, where Transformer Engine is installed")
    if strategy["fusion"] == "te":
        strategy["gradient_accumulation_fusion"] = False
        why = "weight gradients are written and then added"
        keys.rows["gradient_accumulation_fusion"] = Entry("gradient_accumulation_fusion", "(default)", "derived", "gradient_accumulation_fusion", why)
    if "eager" in (core, asked):
        assumptions["attention_kernel"] = "eager" if strategy["fusion"] == "eager" else "math"
    if keys.flag("model.backend.rope_fusion", False, to="assume.apply_rope_fusion") and strategy["fusion"] == "te":
        assumptions["apply_rope_fusion"] = "true"
    keys.text("model.backend.rope", "", to="assume.apply_rope_fusion")
    _experts(keys, strategy, assumptions, mixture)
    _modules(keys, strategy, architecture, own)
    if keys.flag("compile.enabled", False):
        keys.note("compile.enabled", to="fusion", why="te: kernels fused already" if strategy["fusion"] == "te" else "compile")
        strategy["fusion"] = "te" if strategy["fusion"] == "te" else "compile"
    _loss(keys, strategy)


def _experts(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], mixture: bool) -> None:
    """Products of experts, which of them a token has, and how it reaches them."""
    grouped = keys.choice("model.backend.experts", {"torch": False, "torch_mm": True, "gmm": True, "te": True}, True, to="assume.moe_grouped_gemm")
    exchange = keys.choice("model.backend.dispatcher", _DISPATCHERS, None, to="moe_token_dispatcher_type")
    if (switched := keys.flag(_OLDER, None, to="moe_token_dispatcher_type")) is not None:
        exchange = "deepep" if switched else None
    if mixture and not grouped:
        assumptions["moe_grouped_gemm"] = "false"
    noise = keys.number("model.backend.fake_gate_noise", 0.0, to="assume.expert_load")
    if keys.flag("model.backend.fake_balanced_gate", False, to="assume.expert_load") and mixture:
        # FakeBalancedGate
        assumptions["expert_load"] = "random" if noise else "in_turn"
    if exchange is not None and strategy["ep"] > 1 and mixture:
        _dispatched(keys, strategy, assumptions, exchange)
    elif "model.backend.dispatcher" in keys.given and strategy["ep"] == 1:
        keys.note("model.backend.dispatcher", "no_cost_effect", why="no exchange where experts are not spread over ranks")


def _dispatched(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], backend: str) -> None:
    """Kernels of the exchange's own; with modules op by op, their bytes alone."""
    key = _OLDER if _OLDER in keys.given else "model.backend.dispatcher"
    sms = keys.integer("model.backend.dispatcher_num_sms", None, to="moe_flex_dispatcher_num_sms", least=1)
    if strategy["fusion"] != "te" or backend == "mok":
        assumptions["moe_exchange"] = "once_per_node"
        keys.note(key, to="assume.moe_exchange")
        return
    strategy |= {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": backend}
    keys.note(key, to="moe_token_dispatcher_type, moe_flex_dispatcher_backend")
    if sms is not None:
        strategy["moe_flex_dispatcher_num_sms"] = sms


def _modules(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None", own: bool) -> None:
    """One kernel in place of a module's operations: Liger's, unless a recipe wants none, of a model of transformers'; norms of a model with code of
    its own."""
    if strategy["tp"] > 1 or strategy["cp"] > 1 or own:
        keys.flag(_LIGER, False)
        if _LIGER in keys.given:
            why = "not read for a model with code of its own" if own else "switched off with tensor or context parallelism"
            keys.note(_LIGER, "no_cost_effect", why=why)
        if own and strategy["fusion"] == "eager":
            strategy["fused_kernels"] = ["norm"]
            keys.rows["norms"] = Entry("norms", "(default)", "derived", "fused_kernels", "one compiled kernel each, of a model with code of its own")
        return
    known = architecture is not None and architecture.modelling in _OF_LIGER
    if _LIGER in keys.given:
        liger_modules(keys, _LIGER, strategy)
    elif known and strategy["fusion"] == "eager":
        strategy["fused_kernels"] = list(FUSED)
        keys.rows[_LIGER] = Entry(_LIGER, "(default)", "derived", "fused_kernels", "Liger's kernels, by default")


def _loss(keys: Keys, strategy: dict[str, Any]) -> None:
    loss = str(keys.text("loss_fn._target_", "")).rpartition(".")[2]
    if loss == "FusedLinearCrossEntropy":
        strategy["cross_entropy_fusion"] = "cut"
        keys.note("loss_fn._target_", to="cross_entropy_fusion", why="logits never leave its kernel")
    elif "Chunk" in loss:
        keys.note("loss_fn._target_", "not_modelled", "cross_entropy_fusion", _PIECES)
    elif loss.startswith("TEParallel"):
        keys.note("loss_fn._target_", to="cross_entropy_fusion")
        if strategy["fusion"] == "te":
            strategy["cross_entropy_fusion"] = "te"
    elif loss:
        wide = keys.flag("loss_fn.fp32_upcast", True, to="cross_entropy_fusion")
        keys.note("loss_fn._target_", to="cross_entropy_fusion", why=f"PyTorch's, of logits {'in fp32' if wide else 'as they are'}")
        if strategy["fusion"] == "te" or not wide:
            strategy["cross_entropy_fusion"] = "torch_fp32" if wide else "torch"
