"""What cannot run of the optimizer's update, and of what waits on the host."""

from __future__ import annotations

from symsim.errors import InputError
from symsim.frameworks.choices import FRAMEWORKS
from symsim.inputs.architecture import Architecture
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.inputs.strategy import Strategy
from symsim.inputs.tuning import is_trained
from symsim.lowering.checks_recompute import named_operations


def optimizer_states(_: Architecture, strategy: Strategy) -> None:
    """Megatron-Core optimizer/optimizer_config.py."""
    aware = strategy.use_precision_aware_optimizer
    if aware and strategy.zero == 0:
        raise InputError("use_precision_aware_optimizer needs a distributed optimizer (zero=1 or more)")
    if not FRAMEWORKS[strategy.fusion].state_types and not aware:
        for name in ("main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
            if getattr(strategy, name) not in (None, "fp32"):
                raise InputError(f"{name}={getattr(strategy, name)} needs use_precision_aware_optimizer=true")
    row = OPTIMIZERS[strategy.optimizer]
    if strategy.optimizer_bits != 32 and not row.moments and not row.projected:
        raise InputError(f"optimizer_bits={strategy.optimizer_bits} needs an optimizer with moments, and {strategy.optimizer} keeps {row.meaning}")
    if strategy.optimizer_bits != 32 and (strategy.exp_avg_dtype or strategy.exp_avg_sq_dtype):
        raise InputError(f"optimizer_bits={strategy.optimizer_bits} says the type of moments, which exp_avg_dtype and exp_avg_sq_dtype do too")
    if strategy.fp32_embedding_moments and (strategy.optimizer_bits == 32 or row.by_shape or strategy.optimizer_cpu_offload):
        needed = "optimizer_bits=8 or 4, of an optimizer that takes every number alike, on the device"
        raise InputError(f"fp32_embedding_moments=true says which moments are in fp32 all the same, and needs {needed}")
    if strategy.zero and row.compressed:
        raise InputError(f"optimizer={strategy.optimizer} keeps whole momenta on every rank, and zero={strategy.zero} cuts them; use zero=0")
    if strategy.sub_group_size is not None and strategy.zero != 3:
        raise InputError(f"sub_group_size={strategy.sub_group_size} needs zero=3, and zero is {strategy.zero}")
    if strategy.zero == 2 and row.orthogonal or strategy.zero >= 2 and row.projected:
        whole = "gradients" if row.projected else "matrices on their owner"
        raise InputError(f"optimizer={strategy.optimizer} takes whole {whole}, which zero={strategy.zero} cuts; use zero=1")
    if strategy.optimizer_cpu_offload and not aware and not FRAMEWORKS[strategy.fusion].state_types:
        raise InputError("optimizer_cpu_offload needs use_precision_aware_optimizer=true")
    for name in ("offload_gradients", "overlap_cpu_optimizer_d2h_h2d"):
        if getattr(strategy, name) and not strategy.optimizer_cpu_offload:
            raise InputError(f"{name}=true needs optimizer_cpu_offload=true: nothing is updated on the host")
    if strategy.offload_gradients and (strategy.zero < 2 or strategy.optimizer_offload_fraction != 1):
        raise InputError("offload_gradients=true needs zero=2 or 3, which shards gradients, and optimizer_offload_fraction=1")
    if strategy.optimizer_cpu_offload and OPTIMIZERS[strategy.optimizer].by_shape:
        raise InputError(f"optimizer={strategy.optimizer} has no update on the host; optimizer_cpu_offload is for those that take every number alike")


def in_backward(_: Architecture, strategy: Strategy) -> None:
    """torchtune training/memory.py register_optim_in_bwd_hooks, and what its recipes refuse beside it (full_finetune_distributed.py)."""
    if not strategy.optimizer_in_bwd:
        return
    asked = "optimizer_in_bwd=true frees a gradient as its parameter is updated"
    if strategy.fusion == "te":
        raise InputError(f"{asked}, and fusion=te keeps all of a step in buffers; give fusion=eager or compile")
    if strategy.microbatches > 1 or strategy.pp > 1:
        raise InputError(f"{asked}, and {strategy.microbatches} micro-batches on pp={strategy.pp} add theirs up; give one, with pp=1")
    if strategy.zero not in (0, 3) or strategy.zero == 0 and strategy.dp > 1:
        raise InputError(f"{asked}, and zero={strategy.zero} with dp={strategy.dp} reduces several at once; give zero=3, or zero=0 with dp=1")
    if strategy.clip_grad:
        raise InputError(f"{asked}, and clip_grad={strategy.clip_grad:g} needs the norm of all; give clip_grad=0")
    row = OPTIMIZERS[strategy.optimizer]
    if strategy.optimizer_cpu_offload or row.by_shape or row.looped or row.largest:
        raise InputError(f"{asked}: what {strategy.optimizer} makes beside it, or on the host, is not counted there; give optimizer=adam or sgd")


def autocast(_: Architecture, strategy: Strategy) -> None:
    """torch/amp/autocast_mode.py; with FSDP, parameters arrive in the type of the computation (torch.distributed.fsdp MixedPrecisionPolicy)."""
    if not strategy.autocast:
        return
    needed = {"fusion": "eager", "zero": 0, "pp": 1, "fp8": "none", "grad_reduce_in_fp32": True, "use_dora": False}
    wrong = next((name for name, value in needed.items() if getattr(strategy, name) != value), None)
    if wrong is not None:
        value = str(needed[wrong]).lower()
        raise InputError(f"autocast=true needs {wrong}={value}, and it is {str(getattr(strategy, wrong)).lower()}: it casts whole fp32 parameters")
    if strategy.precision == "fp32" or strategy.main_params_dtype not in (None, "fp32"):
        raise InputError("autocast=true needs precision=bf16 or fp16, to which it casts, and fp32 parameters: main_params_dtype=fp32")
    own = strategy.cross_entropy_fusion not in ("unfused", "native", "te", "torch_fp32")
    if own and any(is_trained(strategy, {table}, None) for table in ("embedding", "lm_head")):
        raise InputError(f"autocast=true does not work with cross_entropy_fusion={strategy.cross_entropy_fusion}, whose types are not known under it")


def on_the_host(architecture: Architecture, strategy: Strategy) -> None:
    """Megatron-Core transformer_config.py; DeepSpeed runtime/zero/config.py."""
    if strategy.offload_parameters and strategy.zero != 3:
        raise InputError(f"offload_parameters=true needs zero=3, which shards them, and zero is {strategy.zero}")
    count = strategy.cpu_offloading_num_layers
    if strategy.offload_operations is not None:
        named_operations("offload_operations", strategy.offload_operations, architecture)
        if count or strategy.recompute == "full":
            other = "cpu_offloading_num_layers, which takes whole layers" if count else "recompute=full, which keeps none of them"
            raise InputError(f"offload_operations does not work with {other}")
    if not count:
        return
    if count >= architecture.num_layers:
        raise InputError(f"cpu_offloading_num_layers={count} should be below the {architecture.num_layers} layers of {architecture.name}")
    if strategy.pp > 1:
        raise InputError(f"cpu_offloading_num_layers={count} does not work with pp={strategy.pp}; give pp=1")
    by_layer = strategy.recompute_method == "uniform" and strategy.recompute_num_layers == 1 and strategy.recompute_layers_per_stage is None
    checkpoints = strategy.recompute == "full" and by_layer and FRAMEWORKS[strategy.fusion].stops_early  # PyTorch's checkpoints, by its hooks
    if strategy.recompute != "none" and not checkpoints:
        instead = "give recompute=none, or recompute=full of each layer with fusion=eager"
        raise InputError(f"cpu_offloading_num_layers={count} does not work with recompute={strategy.recompute}; {instead}")
