"""What cannot run of gradients and parameters that are sharded over data ranks, in a pipeline."""

from __future__ import annotations

from symsim.errors import InputError
from symsim.frameworks.choices import FRAMEWORKS
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.lowering.shares import divisors
from symsim.pipeline.schedules import schedule_of

# what weight shards have no choice of: they are gathered for every use, and their gradients scattered every micro-batch (Megatron-LM)
_OF_OTHERS = """
    param_persistence_threshold prefetch_bucket_size max_live_parameters max_reuse_distance reshard_after_forward reshard_after_backward
    gradient_sync""".split()


def sharded_stages(architecture: Architecture, strategy: Strategy) -> None:
    """A rank of two stages keeps them whole (DeepSeek-V3, arXiv:2412.19437, sec. 3.2: ZeRO-1); groups are of interleaved schedules."""
    if strategy.gradient_sync == "every_group":
        if strategy.zero < 2:
            raise InputError(f"gradient_sync=every_group needs zero=2 or 3, which shards gradients, and zero is {strategy.zero}")
        if strategy.vpp == 1 or schedule_of(strategy).chunks != "any":
            raise InputError("gradient_sync=every_group needs an interleaved schedule, whose micro-batches run in groups; give vpp=2 or more")
    several = strategy.num_distributed_optimizer_instances > 1 or strategy.expert_shard_ranks not in (None, strategy.expert_dp)
    if strategy.outer_dp_sharding_strategy == "optim" and not (strategy.zero == 3 and several):
        needed = "zero=3 and num_distributed_optimizer_instances=2 or more"
        raise InputError(f"outer_dp_sharding_strategy=optim shards states over replicas of what FSDP shards; give {needed}")
    _experts(architecture, strategy)
    if strategy.zero >= 2 and strategy.pp > 1 and schedule_of(strategy).mirrored:
        raise InputError(f"zero={strategy.zero} does not work with schedule={strategy.schedule}, whose ranks hold two stages each; use zero=1")


def _experts(architecture: Architecture, strategy: Strategy) -> None:
    ranks = strategy.expert_shard_ranks
    if ranks is None:
        return
    asked, others = f"expert_shard_ranks={ranks}", strategy.dp * strategy.cp // strategy.num_distributed_optimizer_instances
    if strategy.zero != 3 or architecture.moe is None:
        what = f"zero is {strategy.zero}" if strategy.zero != 3 else f"{architecture.name} has none"
        raise InputError(f"{asked} says over how many ranks FSDP (zero=3) shards experts, and {what}")
    if strategy.expert_dp % ranks:
        raise InputError(f"{asked} does not divide the {strategy.expert_dp} ranks that share an expert; valid: {divisors(strategy.expert_dp)}")
    if ranks == others == 1:
        raise InputError(f"{asked}, and an instance a rank: nothing is sharded, as with zero=1")
    whole = ranks == 1 < strategy.expert_dp or others == 1 < strategy.dp * strategy.cp
    if whole and strategy.outer_dp_sharding_strategy != "optim":
        raise InputError(f"{asked} leaves a part whole on every rank, whose states its ranks share; give outer_dp_sharding_strategy=optim")
    if not FRAMEWORKS[strategy.fusion].main_gradients:
        raise InputError(f"{asked} needs gradients that are accumulated in buffers of their own (fusion=te), and fusion is {strategy.fusion}")
    for name in _OF_OTHERS:
        if getattr(strategy, name) != Strategy.model_fields[name].default:
            raise InputError(f"{asked} and {name}={str(getattr(strategy, name)).lower()} are of two frameworks; give one")
