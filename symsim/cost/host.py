"""What the host does for stage i: traffic over its link, and the update of what it holds, at the bandwidth of its own memory.

Sources: ZeRO-Offload, arXiv:2101.06840, sec. 4 and 5 (gradients leave beside backward; DeepSpeedCPUAdam is one pass); Megatron-Core
optimizer/cpu_offloading/hybrid_optimizer.py (overlap_cpu_optimizer_d2h_h2d); torch.distributed.fsdp CPUOffloadPolicy.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from symsim.algebra.expr import ONE, ZERO, Expr, expr, maximum, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import of_stage
from symsim.algebra.quantity import SECOND, Quantity
from symsim.cost.reduce import expert_groups, shards
from symsim.cost.states import state_bytes
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS
from symsim.lowering.lowered import Lowered

# Bytes a parameter that PyTorch's AdamW moves besides one pass: weight decay, two moments, a root, a quotient and the step are kernels of
# their own, each reading and writing fp32 (torch.optim.adamw _single_tensor_adamw)
OPERATION_BY_OPERATION = 52


def host_traffic(book: Derivation, lowered: Lowered, define: Callable[..., Quantity]) -> None:
    """Activations leave and return, sharded parameters come, and gradients that are summed on the host leave, beside computation; other
    gradients leave, and parameters return, after the pipeline, or beside the host's update; states on a drive are read and written then."""
    strategy = lowered.profile.strategy
    moved = {what: of_stage("H_stage_link", what) for what in ("activations", "parameters", "gradients", "optimizer")}
    seconds = {what: key.expr / symbol("B_host") for what, key in moved.items() if key in book}
    if not seconds:
        return
    waiting = {"activations", "gradients"} if lowered.profile.assumptions["fsdp_prefetch"] == "false" else {"activations", "gradients", "parameters"}
    if beside := [seconds.pop(what) for what in sorted(waiting) if what in seconds]:
        seconds["beside"] = maximum(0, sum(beside, ZERO) - symbol("m") * of_stage("t").expr)
    drive = of_stage("H_stage_link", "drive")
    if drive in book:
        seconds["drive"] = drive.expr / symbol("B_drive")
    if strategy.overlap_cpu_optimizer_d2h_h2d and "optimizer" in seconds:
        seconds["optimizer"] = maximum(0, seconds["optimizer"] - _update(lowered))
    exposed = Quantity(sum(seconds.values(), ZERO), SECOND)
    define(of_stage("e", "offload"), exposed, "stage i: host traffic that computation does not hide", r"\epsilon^{\mathrm{host},(i)}")


def host_seconds(lowered: Lowered, define: Callable[..., Quantity]) -> Quantity:
    """The host's update of the states that it holds."""
    seconds = _update(lowered)
    if not seconds:
        return Quantity(ZERO, SECOND)
    return define(of_stage("t", "host"), Quantity(seconds, SECOND), "stage i: the update on the host", r"t_{\mathrm{host}}^{(i)}")


def _update(lowered: Lowered) -> Expr:
    """Gradients read, states read and written, and parameters written in the type of the computation."""
    strategy = lowered.profile.strategy
    if not strategy.optimizer_cpu_offload:
        return ZERO
    share = expr(Fraction(str(strategy.optimizer_offload_fraction)))
    each = 4 + 2 * state_bytes(strategy) + WIDTHS[strategy.precision] + _operations(strategy)
    found = ZERO
    for name, expert in (("dense", False), ("expert", True)):
        if expert and lowered.profile.model.moe is None:
            continue
        shard = shards(lowered, expert and expert_groups(lowered)).owners if strategy.zero else ONE
        found = found + of_stage("P", name).expr * each * share / shard
    return found / symbol("B_dram")


def _operations(strategy: Strategy) -> int:
    return OPERATION_BY_OPERATION if strategy.host_update == "torch" else 0
