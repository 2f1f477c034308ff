"""What a framework does otherwise: one object of its choices, which the passes read instead of its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Ring:
    """How context parallelism passes keys and values from rank to rank.

    gathers: cp_comm_type=all_gather gathers them inside the ring, and passes their gradients around it. returns: gradients
    go a step further, back to the rank whose keys they are of. gradient_dtype: the type of gradients on the way; "": theirs.
    """

    gathers: bool = False
    returns: bool = False
    gradient_dtype: str = ""


@dataclass(frozen=True)
class Framework:
    """The choices of one framework; the defaults are what follows by rule alone. `choices.py` has those that ship."""

    name: str = ""
    lowerings: Mapping[str, Callable[[Any, Any], None]] = field(default_factory=dict)
    """For every kind of declared operation, the kernels that run and the tensors each keeps (`frameworks/fuse.py`)."""

    # communicate, differentiate
    shares_redistributions: bool = True
    """Consumers that want a tensor in the same place redistribute it once."""
    ring: Ring = Ring()
    counts: str = "all_gather"
    """The collective that tells ranks how many tokens every expert gets; "": none."""
    unreduced: frozenset[str] = frozenset()
    """Parts of a layer whose output's partial gradient is not reduced, although the rule asks for it."""

    unrecorded: frozenset[str] = frozenset({"indexer"})
    """Parts of a layer that run without recording gradients."""

    # remember
    keeps_gathered: bool = False
    """An input that was gathered is kept so; else its shard is kept, and gathered again for the weight gradient."""
    stops_early: bool = False
    """What runs again stops at the last tensor that backward needs."""
    checkpoints_ask: bool = False
    """Where layers run again, what the first one reads has a gradient, although nothing before it is trained."""

    # memory
    main_gradients: bool = True
    """Gradients are accumulated in buffers that are always there; else they come into being in backward and may wait there."""
    placeholders: bool = False
    """Weight gradients of linear modules are accumulated by their product, with an unused gradient kept for autograd."""
    returns_logits: bool = False
    """Forward hands the logits back, so they live on."""
    op_by_op: bool = False
    """Operations run one by one from Python: what a call is given lives until it has returned, and a derivative is as many operations as
    its formula has."""

    # time
    launches: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Kernels that the host launches for a kind of operation, forward and backward, where it is not one."""
    losses_in_kernels: tuple[str, ...] = ()
    """The cross_entropy_fusion under which the loss is several kernels that read and write the logits."""
    reduces_beside: bool = False
    """Tensor-parallel messages of backward run beside the products of the same projection without an overlap option."""

    # adapters
    adapts_experts: bool = True
    """All linear maps are targets with the experts' among them."""
    scales_as_it_adds: bool = False
    """What an adapter makes is scaled and added to the base's result in one kernel."""
    unadapted: frozenset[str] = frozenset({"lm_head", "router", "fn"})
    """Weights of linear maps that are targets only by name."""

    # what may be asked for
    fp8: bool = False
    state_types: bool = True
    """The types of optimizer states are free without the precision-aware optimizer."""


BY_RULE = Framework()
