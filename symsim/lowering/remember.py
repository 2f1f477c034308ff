"""remember: what stays in memory between forward and backward, and what is computed again.

A saved tensor counts by its storage: views keep the whole of what they look into, and two operations that keep one
storage keep it once. A gathered input is kept as its shard and gathered again for the weight gradient, unless the
profile keeps it gathered. A recompute region drops what its operations keep, keeps its inputs instead, and runs
forward again in backward.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, NamedTuple

from symsim.algebra.expr import Expr
from symsim.frameworks.recompute import DISCARD, KERNEL
from symsim.inputs.conventions import OWN, Conventions, Leaf, last_part
from symsim.ir.block import NARROW, WIDTHS, Block, Op, Tensor
from symsim.ir.collectives import COLLECTIVES
from symsim.ir.messages import Message, Purpose
from symsim.ir.operations import OPERATIONS, Cast, Projection, Redistribution
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import Differentiated, room

GATHERED_AXES = frozenset({"tp", "cp", "cp_a2a", "cp_p2p"})


class Keeper(NamedTuple):
    """An operation that asked for a tensor: for its backward, or (again) to run again."""

    operation: str
    again: bool = False

    def __str__(self) -> str:
        return f"recompute of {self.operation}" if self.again else self.operation


@dataclass(frozen=True)
class Saved:
    """One storage kept for backward: its local elements and type, and the operations that asked for it. width: bytes an element
    where a convention says otherwise than the type. apart, by a convention: a copy beside what others keep, or a view without what it looks
    into."""

    tensor: Tensor
    elements: Expr
    by: tuple[Keeper, ...]
    width: Fraction | None = None
    apart: Literal["", "copy", "view"] = ""

    @property
    def name(self) -> str:
        return f"{self.tensor.name}.copy" if self.apart == "copy" else self.tensor.name

    @property
    def bytes_each(self) -> Fraction | int:
        return WIDTHS[self.tensor.dtype] if self.width is None else self.width

    @property
    def bytes(self) -> Expr:
        return self.elements * self.bytes_each


@dataclass(frozen=True)
class Remembered:
    """A differentiated block with what it keeps, what is shared by all layers, and what runs again in backward."""

    differentiated: Differentiated
    saved: tuple[Saved, ...]
    shared: tuple[Saved, ...]
    recomputed: frozenset[int]
    backward_messages: tuple[tuple[int, Message], ...]

    @property
    def placed(self) -> Placed:
        return self.differentiated.placed


@dataclass
class _Kept:
    conventions: Conventions = OWN
    by: dict[str, dict[Keeper, Fraction | None]] = field(default_factory=dict)
    twice: dict[str, dict[Keeper, Fraction | None]] = field(default_factory=dict)
    alone: set[str] = field(default_factory=set)

    def add(self, name: str, op: Op, *, again: bool = False) -> None:
        labels = op.attrs.labels if isinstance(op.attrs, Projection) else ()
        width = self.conventions.width(op.kind, labels, name)
        if width == 0:
            return
        if again and op.kind in self.conventions.again_typed:
            width = None
        own = not again and self.conventions.twice(op.kind, labels, name)
        (self.twice if own else self.by).setdefault(name, {})[Keeper(op.name, again)] = width
        if not again and (op.kind, last_part(name)) in self.conventions.kept_alone:
            self.alone.add(name)


def remember(
    differentiated: Differentiated,
    *,
    regions: frozenset[str] = frozenset(),
    full: bool = False,
    stored: str = "",
    keep_gathered: bool = False,
    early_stop: bool = False,
    distribute: bool = False,
    narrow: Collection[str] = (),
    conventions: Conventions = OWN,
    leaves: tuple[Leaf, ...] = (),
) -> Remembered:
    """What a block keeps. regions: recompute modules; full: the whole block is one region; stored: PyTorch selective
    checkpointing, which keeps the outputs of these operations and computes the rest again. distribute: the block's input, where
    a region keeps it, is kept split over TP and gathered again (Megatron-Core distribute_saved_activations). narrow: operations that run again from
    narrow copies of their inputs. conventions: what kernels keep elsewhere; leaves: of a layer that another system recomputes leaf by leaf,
    instead of regions.
    """
    placed = differentiated.placed
    block = placed.block
    if not differentiated.backward:  # nothing is trained here or before: nothing is kept to run again
        full, stored, regions, leaves = False, "", frozenset(), ()
    whole = full or bool(stored)
    inside = {i for i, op in enumerate(block.ops) if (whole or op.regions & regions) and not _narrows(block, op, narrow)}
    discarding = {i for i, op in enumerate(block.ops) if not whole and op.regions & regions & DISCARD}
    kept = _Kept(conventions)
    if leaves:
        inside, skipped = _kept_by_leaves(kept, block.ops, leaves)
        whole, discarding = True, set()
    for index, op in enumerate(block.ops if not leaves else ()):
        for name in op.saves if index not in inside else ():
            kept.add(name, op)
    if not leaves:
        _keep_around(kept, block, sorted(inside), regions, whole, stored)
    if discarding:
        roots = {block.storage(t).name for i in discarding for t in block.ops[i].outputs}
        outside = {n: by for n, by in kept.by.items() if block.storage(kept_as(placed, n, keep_gathered)).name not in roots}
        kept = _Kept(conventions, outside, kept.twice)

    again = inside - skipped if leaves else _recomputed(placed, inside, stored, early_stop)
    messages = list(differentiated.backward_messages)
    messages += [(i, _in_backward(m, "recomputed")) for i, m in differentiated.forward_messages if i in again]
    messages += _gathered_again(differentiated, keep_gathered)
    saved, shared = _by_storage(placed, kept.by, keep_gathered, kept.alone)
    saved += tuple(replace(s, apart="copy") for s in _by_storage(placed, kept.twice, keep_gathered)[0])
    if distribute and placed.mesh.active("tp"):
        degree = placed.mesh.degree("tp")
        split = [s for s in saved if s.tensor.name in block.inputs and all(by.again for by in s.by)]
        messages += [
            (0, Message("backward", "all_gather", "tp", degree, s.elements / degree, s.elements, s.tensor.dtype, "split checkpoint")) for s in split
        ]
        saved = tuple(replace(s, elements=s.elements / degree) if s in split else s for s in saved)
    # an auxiliary loss is taken only where gradients are recorded (router.py): not in the first pass of what runs again
    first = tuple((i, m) for i, m in differentiated.forward_messages if i not in again or OPERATIONS[block.ops[i].kind].inner != "balance")
    return Remembered(replace(differentiated, forward_messages=first), saved, shared, frozenset(again), tuple(messages))


def _narrows(block: Block, op: Op, named: Collection[str]) -> bool:
    """Whether an operation casts what one of these reads to a narrow type."""
    casts = isinstance(op.attrs, Cast) and all(block.tensors[t].dtype in NARROW for t in op.outputs)
    return casts and any(op.name.startswith(f"{name}.") for name in named)


def _keep_around(kept: _Kept, block: Block, inside: list[int], regions: frozenset[str], whole: bool, stored: str) -> None:
    """What operations that run again read from outside their region, and results that are stored all the same."""
    makers = {t: i for i, op in enumerate(block.ops) for t in op.outputs}
    for index in inside:
        op = block.ops[index]
        for name in op.inputs:
            tensor = block.tensors[name]
            if tensor.kind != "parameter" and (
                makers.get(name) not in inside or _region(block.ops, makers[name], regions, whole) != _region(block.ops, index, regions, whole)
            ):
                kept.add(name, op, again=True)
        if stored in OPERATIONS[op.kind].stored_by:
            for name in op.outputs:
                kept.add(name, op)


def _region(ops: tuple[Op, ...], index: int, regions: frozenset[str], whole: bool) -> frozenset[str]:
    return frozenset({"all"}) if whole else ops[index].regions & regions


def _gathered_in_backward(op: Op) -> bool:
    """Whether the input of a gather is kept, and gathered again: not over etp, where the dispatcher gathers (exceptions)."""
    return "save_gathered" in OPERATIONS[op.kind].assumed and op.of(Redistribution).axis in GATHERED_AXES


def kept_as(placed: Placed, name: str, keep_gathered: bool) -> str:
    """The version of a tensor that is kept: before a gather that runs again in backward, or behind an exchange that does."""
    op = placed.block.producer(name)
    while not keep_gathered and op is not None and _gathered_in_backward(op):
        name = op.inputs[0]
        op = placed.block.producer(name)
    back = next((o for o in placed.block.ops if _comes_back(placed, o) and o.inputs[0] == name), None) if placed.mesh.returns_output else None
    return name if back is None else back.outputs[0]


def _comes_back(placed: Placed, op: Op) -> bool:
    """Whether an operation is the exchange of attention's output, which is kept behind it and exchanged again for the backward."""
    exchanged = op.kind in COLLECTIVES and COLLECTIVES[op.kind].carried == "exchange"
    maker = placed.block.producer(op.inputs[0]) if placed.mesh.returns_output and exchanged else None
    return maker is not None and OPERATIONS[maker.kind].role == "attention"


def _kept_by_leaves(kept: _Kept, ops: tuple[Op, ...], leaves: tuple[Leaf, ...]) -> tuple[set[int], set[int]]:
    """What a layer keeps whose recomputation goes leaf by leaf; its operations that run again, and those of them whose kernels do not.
    A segment keeps the inputs of its first leaf, and one of a single leaf nothing, unless the leaf begins a segment whatever stands before it."""
    inside: set[int] = set()
    skipped: set[int] = set()
    before = False
    of = [max(leaves, key=lambda leaf: leaf.holds(op.name)) for op in ops]
    held = [leaf for op, leaf in zip(ops, of) if leaf.holds(op.name)]
    for at, leaf in enumerate(leaves):
        if leaf not in held:
            continue
        own = [i for i, op in enumerate(ops) if of[i] is leaf and leaf.holds(op.name)]
        after = next((n.again and not n.first for n in leaves[at + 1 :] if n in held), False)
        if not leaf.again:
            for i in own if leaf.keeps else ():
                for name in ops[i].saves:
                    kept.add(name, ops[i])
        else:
            inside |= set(own)
            skipped |= set() if leaf.replayed else set(own)
            if leaf.first or (not before and (after or leaf.several)):
                made = {t for i in own for t in ops[i].outputs}
                for i in own:
                    for name in ops[i].inputs:
                        if name not in made:
                            kept.add(name, ops[i], again=True)
                for name, width in leaf.beside:
                    kept.by.setdefault(name, {})[Keeper(ops[own[0]].name, True)] = Fraction(width)
        before = leaf.again
    for op in (op for op, leaf in zip(ops, of) if not leaf.holds(op.name)):
        for name in op.saves:
            kept.add(name, op)
    return inside, skipped


def _by_storage(
    placed: Placed, names: Mapping[str, Mapping[Keeper, Fraction | None]], keep_gathered: bool, alone: Collection[str] = ()
) -> tuple[tuple[Saved, ...], tuple[Saved, ...]]:
    block = placed.block
    roots: dict[str, dict[Keeper, Fraction | None]] = {}
    for name, by in names.items():
        own = kept_as(placed, name, keep_gathered)
        root = block.tensors[own] if name in alone else block.storage(own)
        if root.kind != "parameter" and not root.borrowed:
            roots.setdefault(root.name, {}).update(by)
    views = {kept_as(placed, name, keep_gathered) for name in alone}
    made = [
        Saved(t, room(placed, n, kept=True), tuple(by), _width(t, by.values()), "view" if n in views else "")
        for n, by in roots.items()
        for t in [block.tensors[n]]
    ]
    return tuple(s for s in made if s.tensor.kind != "table"), tuple(s for s in made if s.tensor.kind == "table")


def _width(tensor: Tensor, asked: Iterable[Fraction | None]) -> Fraction | None:
    """The widest that any keeper asks for; None where none says otherwise than the type."""
    said = list(asked)
    return None if all(w is None for w in said) else max(Fraction(WIDTHS[tensor.dtype]) if w is None else w for w in said)


def _gathered_again(differentiated: Differentiated, keep_gathered: bool) -> list[tuple[int, Message]]:
    placed = differentiated.placed
    block = placed.block
    needed = {name for op in block.ops for name in op.saves}
    made = []
    for index, message in differentiated.forward_messages:
        op = block.ops[index]
        gathered = not keep_gathered and _gathered_in_backward(op) and op.outputs[0] in needed
        if gathered or (_comes_back(placed, op) and op.inputs[0] in needed):
            made.append((index, _in_backward(message, "gathered again")))
    return made


def _in_backward(message: Message, why: Purpose) -> Message:
    said = {"recomputed": "recomputed", "gathered again": "again"}[why]
    return replace(message, phase="backward", what=f"{message.what}, {said}", purpose=why)


def _recomputed(placed: Placed, inside: set[int], stored: str, early_stop: bool) -> set[int]:
    """Operations of the regions that run again: all of them, or (early stop) those up to the last one that keeps a
    tensor; that one runs only when what it keeps is its own output. What a kernel makes again in its own backward it always does.
    """
    ops = placed.block.ops
    again = {i for i in inside if stored not in OPERATIONS[ops[i].kind].stored_by}
    keeping = [i for i in inside if any(placed.block.tensors[t].kind != "parameter" for t in ops[i].saves)]
    if not early_stop or not keeping:
        return again
    last = max(keeping)
    runs_last = bool(set(ops[last].saves) & set(ops[last].outputs))
    return {i for i in again if i < last or (i == last and runs_last) or KERNEL in ops[i].regions}
