"""What cannot run of gradients and parameters that are sharded over data ranks, in a pipeline."""

from __future__ import annotations

from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.pipeline.schedules import schedule_of


def sharded_stages(_: Architecture, strategy: Strategy) -> None:
    """A rank of two stages keeps them whole (DeepSeek-V3, arXiv:2412.19437, sec. 3.2: ZeRO-1); groups are of interleaved schedules."""
    if strategy.gradient_sync == "every_group":
        if strategy.zero < 2:
            raise InputError(f"gradient_sync=every_group needs zero=2 or 3, which shards gradients, and zero is {strategy.zero}")
        if strategy.vpp == 1 or schedule_of(strategy).chunks != "any":
            raise InputError("gradient_sync=every_group needs an interleaved schedule, whose micro-batches run in groups; give vpp=2 or more")
    if strategy.outer_dp_sharding_strategy == "optim" and (strategy.zero != 3 or strategy.num_distributed_optimizer_instances == 1):
        needed = "zero=3 and num_distributed_optimizer_instances=2 or more"
        raise InputError(f"outer_dp_sharding_strategy=optim shards states over replicas of what FSDP shards; give {needed}")
    if strategy.zero >= 2 and strategy.pp > 1 and schedule_of(strategy).placement == "mirrored":
        raise InputError(f"zero={strategy.zero} does not work with schedule={strategy.schedule}, whose ranks hold two stages each; use zero=1")
