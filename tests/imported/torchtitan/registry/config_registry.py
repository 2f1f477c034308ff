from torchtitan.components.loss import ChunkedLossWrapper
from torchtitan.components.optimizer import default_adamw
from torchtitan.components.quantization import MXFP8LinearConverter
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.trainer import Trainer

from . import model_registry

ROW = 4096
KERNELS = ("torchtitan.overrides.fused_swiglu.fused_swiglu", "torchtitan.overrides.fused_swiglu.fused_grouped_experts")


def _fused(config: Trainer.Config) -> None:
    for name in KERNELS:
        assert name not in config.override.imports
        config.override.imports.append(name)


def dense(rows: int = 2) -> Trainer.Config:
    spec = model_registry("8B", attn_backend="varlen")
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(num_chunks=16),
        model_spec=spec,
        optimizer=default_adamw(3e-4),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=rows * ROW, max_context_length=ROW, steps=100),
        parallelism=ParallelismConfig(tensor_parallel_degree=4, enable_sequence_parallel=True),
        activation_checkpoint=FullAC.Config(),
    )


def narrow() -> Trainer.Config:
    config = dense(rows=1)
    config.compile = CompileConfig(enable=True, components=["model"])
    config.model_spec = model_registry("8B", converters=[MXFP8LinearConverter.Config(fqns=["layers"])])
    config.activation_checkpoint = None
    config.training.disable_cuda_graphs = True
    return config


def staged() -> Trainer.Config:
    config = dense()
    _fused(config)
    config.parallelism.pipeline_parallel_degree = 2
    config.parallelism.num_pp_microbatches = 8
    config.activation_checkpoint = SelectiveAC.Config()
    return config
