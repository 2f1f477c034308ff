"""What the rules of the lowering and of the cost do where sources disagree: every option with symsim's own choice as its default.

`symsim/compat` sets them to what another system does, a named difference at a time; nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

from symsim.errors import InputError

Rule = Callable[..., Any]
REPLAYED = "t_replayed"


@dataclass(frozen=True)
class Leaf:
    """A part of a layer that another system's recomputation treats as one: its operations by name (with what was inserted for them).

    again: it runs again in backward, as one segment with those beside it; first: it begins a segment even so; several: it is more than one there,
    so that a segment of it alone keeps inputs; replayed: its kernels do run again, else only its inputs are made anew. keeps: it keeps what its
    backward needs, where it does not run again.
    beside: tensors that it keeps besides its inputs where it begins a segment, and bytes an element of each.
    """

    names: tuple[str, ...]
    again: bool = False
    first: bool = False
    several: bool = False
    replayed: bool = True
    keeps: bool = True
    beside: tuple[tuple[str, int], ...] = ()

    def holds(self, operation: str) -> int:
        """Characters of the longest of its names that an operation goes by; 0 where it is not of this leaf."""
        return max((len(name) for name in self.names if operation == name or operation.startswith(f"{name}.")), default=0)


@dataclass(frozen=True)
class Conventions:
    """Options of the rules. The defaults are symsim's; an empty mapping changes nothing.

    kept: bytes an element of what a kernel keeps, by its kind or the label of its weight, and the last part of the tensor's name (or
    two, or "*"); 0: it keeps none of it.
    kept_twice: operations, by kind or by the label of a weight, whose kept input is a copy of their own, and the tensor (or "*").
    again_typed: kinds of operations whose inputs, kept to run them again, have the width of their type whatever `kept` says.
    kept_alone: kept views, by the kind of operation and the last part of the name, that keep nothing of what they look into but themselves.
    leaves: the leaves of a layer in their order, of those layers that are recomputed; a segment keeps the inputs of its first leaf alone.
    alone: the layers of a model are all that there is: no embedding, final norm, head or loss.
    counted: FLOPs of a kernel on one rank by the kind of operation: (placed block, index, phase, profile) -> expression.
    moved: bytes that it reads and writes, likewise.
    again: `flops` and `seconds` of what a block runs again: (name of the block, whether it is recomputed in full) -> expression.
    held: bytes of a rank of stage i, of `weights`, `gradients`, `optimizer`, `activations` or at the `peak`: (lowered) -> expression.
    whole: FLOPs of an operation in the whole model, by the label of its weight or its kind: (placed block, index, phase, profile) ->
    expression, or None where it is as ever.
    uncounted: parameters that are not counted, by a name of the rule: (tensor) -> bool.
    attention_backward: products of attention's backward as a multiple of forward's.
    fp8_weights: bytes an element of a weight that is multiplied in FP8, with all copies.
    kernels: seconds of a kernel by the kind of operation: (placed block, index, phase, profile) -> expression.
    messages: what becomes of a block's message, by a name of the rule: (name of the block, message) -> messages.
    collective: seconds of a message: (message) -> expression.
    update: seconds of stage i for gradients and for parameters after the pipeline: (lowered) -> two expressions; no gathers before.
    passes: seconds of stage i for the optimizer: (lowered) -> expression.
    pipeline: seconds of the pipeline, of which the definition is then the symbol REPLAYED: (evaluation) -> number.
    slower: a factor on the pipeline.
    """

    kept: Mapping[tuple[str, str], Fraction] = field(default_factory=dict)
    kept_twice: frozenset[tuple[str, str]] = frozenset()
    again_typed: frozenset[str] = frozenset()
    kept_alone: frozenset[tuple[str, str]] = frozenset()
    leaves: tuple[Leaf, ...] = ()
    alone: bool = False
    counted: Mapping[str, Rule] = field(default_factory=dict)
    moved: Mapping[str, Rule] = field(default_factory=dict)
    again: Mapping[str, Rule] = field(default_factory=dict)
    held: Mapping[str, Rule] = field(default_factory=dict)
    whole: Mapping[str, Rule] = field(default_factory=dict)
    uncounted: Mapping[str, Rule] = field(default_factory=dict)
    attention_backward: Fraction | None = None
    fp8_weights: int | None = None
    kernels: Mapping[str, Rule] = field(default_factory=dict)
    messages: Mapping[str, Rule] = field(default_factory=dict)
    collective: Rule | None = None
    update: Rule | None = None
    passes: Rule | None = None
    pipeline: Rule | None = None
    slower: int | float = 1

    def width(self, kind: str, labels: tuple[str, ...], tensor: str) -> Fraction | None:
        """Bytes an element of a tensor that an operation keeps, where they are not those of its type."""
        said = (self.kept.get((who, what)) for who in (*labels, kind) for what in (last_part(tensor, 2), last_part(tensor), "*"))
        return next((width for width in said if width is not None), None)

    def twice(self, kind: str, labels: tuple[str, ...], tensor: str) -> bool:
        """Whether an operation keeps a tensor beside what others keep of it."""
        return any((who, what) in self.kept_twice for who in (kind, *labels) for what in ("*", last_part(tensor)))


OWN = Conventions()


def last_part(tensor: str, count: int = 1) -> str:
    """The last part of a tensor's name, or as many as asked, of whatever layout."""
    return ".".join(tensor.partition("@")[0].split(".")[-count:])


def changed(conventions: Conventions, options: Mapping[str, Any]) -> Conventions:
    """The conventions with some options of another system: tables and sets grow, all else is replaced."""
    made: dict[str, Any] = {}
    known = {f.name for f in fields(Conventions)}
    for name, value in options.items():
        if name not in known:
            raise InputError(f"there is no convention '{name}'")
        before = getattr(conventions, name)
        made[name] = {**before, **value} if isinstance(before, Mapping) else before | value if isinstance(before, frozenset) else value
    return replace(conventions, **made)
