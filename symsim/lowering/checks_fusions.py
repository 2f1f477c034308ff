"""What cannot run of single fusions, which are of fused kernels."""

from __future__ import annotations

from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy

FUSIONS = ("gradient_accumulation_fusion", "bias_activation_fusion", "bias_dropout_fusion", "masked_softmax_fusion", "norm_fusion", "use_fused_mhc")


def fusions(_: Architecture, strategy: Strategy) -> None:
    """Single fusions are of kernels that are fused; FP8 inputs of an activation are written by the fused kernel alone."""
    off = [name for name in FUSIONS if not getattr(strategy, name)]
    if off and strategy.fusion != "te":
        raise InputError(f"{off[0]}=false needs fusion=te: fusion={strategy.fusion} runs module by module, with none of these fusions")
    if strategy.attention_output_store is not None and strategy.fusion != "te":
        raise InputError(f"attention_output_store={strategy.attention_output_store} needs fusion=te: PyTorch's autograd keeps what its kernels make")
    if strategy.use_transformer_engine_op_fuser and (strategy.fusion != "te" or strategy.expert_tp > 1):
        raise InputError("use_transformer_engine_op_fuser=true needs fusion=te and etp=1: experts are not cut there (moe/experts.py)")
    if strategy.activation_func_fp8_input_store and not strategy.bias_activation_fusion:
        raise InputError("activation_func_fp8_input_store=true needs bias_activation_fusion=true: the fused kernel writes the FP8 copy")
