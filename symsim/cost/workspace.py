"""workspace: what a block holds while each of its kernels runs, forward and backward.

A tensor lives from the kernel that makes it to the last that reads it; one that backward needs lives until then; a
gradient lives until the operation it belongs to has used it. What a block holds at its worst kernel is the maximum of a
few sums, since most kernels hold no more than another one whatever the sizes are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from symsim.algebra.expr import ONE, ZERO, Expr, summed
from symsim.cost import linear_loss, stored
from symsim.cost.count import counted_parameters
from symsim.ir.block import NARROW, WIDTHS, Op
from symsim.ir.exceptions import of_linear_module
from symsim.ir.operations import OPERATIONS, PRODUCTS, REDISTRIBUTIONS, CrossEntropy, LinearCrossEntropy, Projection
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import DEQUANTISE, BackwardOp, elements, room
from symsim.lowering.remember import Remembered, kept_as

Delayed = Literal["", "experts", "all"]
"""Weight gradients that wait: none, those of experts, or of every linear module."""


@dataclass(frozen=True)
class Moment:
    """Bytes of a block on one rank while `kernel` runs.

    activations: its activations and their gradients, saved ones included. gradients: those of its parameters that have
    been computed so far; latest: those that this kernel computes.
    """

    kernel: str
    activations: Expr
    gradients: Expr = ZERO
    latest: Expr = ZERO


def forward_moments(
    remembered: Remembered, *, returns_logits: bool = False, op_by_op: bool = False, called: bool = False, cached: bool = False
) -> list[Moment]:
    """The kernels of forward that may hold the most. returns_logits: the module hands its logits back, so they live on
    (transformers CausalLMOutput), and its own frame holds what it gave its output layer. op_by_op: `Framework.op_by_op`; called: the block
    is a call itself, and holds what it is given; cached: copies of parameters stay in autocast's cache."""
    walk = _Walk(remembered.placed, op_by_op, remembered.recomputed)
    kept = {s.name: s.bytes for s in remembered.saved}
    block = remembered.placed.block
    held = {walk.root(t) for t in (*block.outputs, *(block.inputs if called and op_by_op else ()))}
    if cached:
        held |= {walk.root(op.outputs[0]) for op in walk.ops if OPERATIONS[op.kind].casts and block.tensors[op.inputs[0]].kind == "parameter"}
    if returns_logits:
        heads = [op for op in walk.ops if op.kind in PRODUCTS and op.module == "lm_head"]
        held |= {walk.root(op.outputs[0]) for op in heads}
        given = {op.inputs[0] for op in heads}
        casts = {op.outputs[0]: op.inputs[0] for op in walk.ops if OPERATIONS[op.kind].casts and op.module == "lm_head"}
        held |= {walk.root(casts.get(t, t)) for t in given}
    return worst(walk.forward(range(len(walk.ops)), kept, held, {}))


def backward_moments(
    remembered: Remembered,
    *,
    keep_gathered: bool,
    whole: bool = False,
    into_main_gradient: bool = False,
    delayed: Delayed = "",
    op_by_op: bool = False,
    updated: Callable[[Expr], Expr] | None = None,
) -> list[Moment]:
    """The kernels of backward that may hold the most, the forward that recomputation runs again among them.

    keep_gathered: gathered inputs were kept so. whole: what runs again is one region, the block. into_main_gradient:
    products of linear modules write weight gradients where they are accumulated. delayed: the weight gradients of which of them come
    after the input gradients of their node (`_node`), so that the operands of all of them wait. op_by_op: `Framework.op_by_op`.
    updated: where parameters are updated as their gradients are made, bytes that this takes beside one of so many elements.
    """
    return worst(_Backward(remembered, keep_gathered, whole, into_main_gradient, delayed, op_by_op, updated).moments())


def worst(moments: Iterable[Moment]) -> list[Moment]:
    """The moments that no other one exceeds at all sizes (a sum of positive terms exceeds any part of it), whether
    parameter gradients are kept or consumed at once."""
    found: list[tuple[Moment, Expr, Expr]] = []
    for moment in moments:
        kept, consumed = moment.activations + moment.gradients, moment.activations + moment.latest
        if not any(_covers(k, kept) and _covers(c, consumed) for _, k, c in found):
            found = [(m, k, c) for m, k, c in found if not (_covers(kept, k) and _covers(consumed, c))]
            found.append((moment, kept, consumed))
    return [moment for moment, _, _ in found]


def _covers(one: Expr, other: Expr) -> bool:
    """Whether no coefficient of `one` is below that of `other`."""
    ours, theirs = one.terms, other.terms
    for monomial, coefficient in theirs.items():
        own = ours.get(monomial, 0)
        # fractions compare slowly
        if own is not coefficient and own < coefficient:
            return False
    return all(monomial in theirs or coefficient >= 0 for monomial, coefficient in ours.items())


class _Walk:
    """A block's operations with the memory behind their tensors; parameters and tables live elsewhere. op_by_op: what a call is given
    lives until it has returned. unrecorded: operations whose graph is not kept, since they run again."""

    def __init__(self, placed: Placed, op_by_op: bool = False, unrecorded: Collection[int] = ()):
        self.placed, self.ops = placed, placed.block.ops
        self.last_read: dict[str, int] = {}
        returned = _returned(self.ops) if op_by_op else {}
        made: dict[str, int] = {}
        for index, op in enumerate(self.ops):
            for root in map(self.root, op.inputs):
                last = max((end for begin, end in returned.get(op.name, ()) if made.get(root, -1) < begin), default=index)
                self.last_read[root] = max(self.last_read.get(root, index), last)
            for root in map(self.root, op.outputs):
                made.setdefault(root, index)
                if op_by_op and op.frame and not (op.recorded and index in unrecorded):
                    self.last_read[root] = max(i for i, o in enumerate(self.ops) if o.name.startswith(op.frame))

    def root(self, name: str) -> str:
        return self.placed.block.storage(name).name

    def own(self, names: Iterable[str]) -> list[str]:
        """The storages of these tensors that are the block's own, each once."""
        roots = dict.fromkeys(self.root(n) for n in names)
        return [r for r in roots if self.placed.block.tensors[r].kind not in ("parameter", "table")]

    def size(self, name: str) -> Expr:
        return room(self.placed, name) * WIDTHS[self.placed.block.tensors[name].dtype]

    def gradient(self, name: str) -> Expr:
        """A gradient has its tensor's type, and that of the computation where the tensor is quantised."""
        dtype = self.placed.block.tensors[name].dtype
        return room(self.placed, name) * WIDTHS[self.placed.mesh.precision if dtype in NARROW else dtype]

    def forward(
        self, indices: Iterable[int], kept: Mapping[str, Expr], held: Iterable[str], present: Mapping[str, Expr], passing: Collection[str] = ()
    ) -> list[Moment]:
        """Moments of these operations: `kept` storages stay, `held` ones stay to the end, `present` are there already, and stay but for those
        that are `passing`."""
        live: dict[str, Expr] = {}
        for root in self.own(n for n in self.placed.block.inputs if not self.placed.block.tensors[n].borrowed):
            live[root] = self.size(root)
        live |= present
        stay = {*held, *(root for root in present if root not in passing)}
        moments = []
        for index in indices:
            op = self.ops[index]
            for root in self.own(op.outputs):
                source = self.root(op.inputs[0]) if op.inputs else ""
                if OPERATIONS[op.kind].in_place and source in live and source not in {*stay, *kept}:
                    live[root] = live.pop(source)
                else:
                    live.setdefault(root, self.size(root))
            if isinstance(op.attrs, LinearCrossEntropy) and op.attrs.adds:
                moments += [Moment(*held) for held in linear_loss.forward_in_turn(self.placed.block, op, summed(live.values()), self.size)]
            elif not op.is_view:
                moments.append(Moment(op.name, summed(live.values()) + stored.beside_forward(self.placed, op)))
            for root in [r for r in live if self.last_read.get(r, -1) <= index and r not in stay]:
                if root in kept:
                    live[root] = kept[root]
                else:
                    del live[root]
        return moments


def _returned(ops: tuple[Op, ...]) -> dict[str, list[tuple[int, int]]]:
    """By operation, the calls that it is in: the first and the last operation of each. A module of a layer is one, and so is an operation with
    others beside it, of an adapter."""
    calls: dict[str, list[int]] = {}
    within: dict[str, list[str]] = {}
    own = {op.name for op in ops}
    for index, op in enumerate(ops):
        parts = op.name.split(".")
        within[op.name] = [call for n in range(1, len(parts) + 1) for call in [".".join(parts[:n])] if n == 1 or call in own]
        for call in within[op.name]:
            calls.setdefault(call, []).append(index)
    return {name: [(calls[call][0], calls[call][-1]) for call in found] for name, found in within.items()}


class _Backward:
    """One pass over a block from its last operation to its first."""

    def __init__(
        self,
        remembered: Remembered,
        keep_gathered: bool,
        whole: bool,
        into_main_gradient: bool,
        delayed: Delayed = "",
        op_by_op: bool = False,
        updated: Callable[[Expr], Expr] | None = None,
    ):
        self.remembered, self.walk, self.whole, self.op_by_op = remembered, _Walk(remembered.placed, op_by_op), whole, op_by_op
        self.into_main_gradient, self.delayed, self.updated = into_main_gradient, delayed, updated
        self.waiting: dict[int, dict[str, Expr]] = {}  # gradients that delayed weight gradients still read, by operation
        self.block = remembered.placed.block
        self.kernels: dict[int, list[BackwardOp]] = {}
        for kernel in remembered.differentiated.backward:
            self.kernels.setdefault(kernel.forward, []).append(kernel)
        self.keep_gathered = keep_gathered
        self.needs = {i: self.walk.own(self._kept_as(t) for t in op.saves) for i, op in enumerate(self.block.ops)}
        self.statistics = self.block.statistics if op_by_op else frozenset()
        self.makers = {r: i for i, op in reversed(list(enumerate(self.block.ops))) for r in self.walk.own(op.outputs)}
        self.live = {s.name: s.bytes for s in remembered.saved}
        self.gradients: dict[str, Expr] = {}
        self.of_parameters = ZERO
        self.found: list[Moment] = []
        self.rebuilt: set[int] = set()
        self.summed: set[str] = set()  # tensors of which two gradients have been added

    def moments(self) -> list[Moment]:
        for name in self.block.outputs:
            if self.block.tensors[name].kind == "activation" and self.block.tensors[name].gradient:
                self.gradients[name] = self.walk.gradient(name)
        for index in range(len(self.block.ops) - 1, -1, -1):
            op = self.block.ops[index]
            arrived = [t for t in op.outputs if t in self.gradients]
            if arrived or OPERATIONS[op.kind].role == "loss":
                self._rebuild(index)
                self._transpose(index, op, arrived)
            for name in arrived:
                self.gradients.pop(name, None)
            self._weight_gradients(index)
            self._release(index)
            if self.updated is not None:
                self._update(index, self.updated)
        return self.found

    def _update(self, index: int, updated: Callable[[Expr], Expr]) -> None:
        """Parameters whose gradients this operation makes, and no other one adds to, are updated beside what it leaves."""
        placed = self.remembered.placed
        read = {t for op in self.block.ops[:index] for t in op.inputs}
        for tensor in (t for t in counted_parameters(placed) if t.gradient and t.name in self.block.ops[index].inputs and t.name not in read):
            held = summed((*self.live.values(), *self.gradients.values())) + updated(elements(placed, tensor.name))
            self.found.append(Moment(f"{self.block.ops[index].name}, update", held, self.of_parameters, self.walk.gradient(tensor.name)))

    def _weight_gradients(self, index: int) -> None:
        """Delayed weight gradients of a node whose input gradients are all made, one after the other."""
        for later in [i for i in self.waiting if not any(_node(op) == _node(self.block.ops[i]) and op.products for op in self.block.ops[:index])]:
            self._note(f"{self.block.ops[later].name}, wgrad", self._gathered_again(self.block.ops[later]))
            del self.waiting[later]

    def _gathered_again(self, op: Op) -> Expr:
        return summed(self.walk.size(t) for t in dict.fromkeys(op.saves) if self._kept_as(t) != t)

    def _kept_as(self, name: str) -> str:
        return kept_as(self.remembered.placed, name, self.keep_gathered)

    def _note(self, kernel: str, extra: Expr = ZERO, latest: Expr = ZERO) -> None:
        held = [*self.live.values(), *self.gradients.values(), *(n for sizes in self.waiting.values() for n in sizes.values())]
        self.found.append(Moment(kernel, summed(held) + extra, self.of_parameters + latest, latest))

    def _rebuild(self, index: int) -> None:
        """Run forward again for the recomputed run of operations that made what this one needs."""
        missing = [r for r in self.needs[index] if r not in self.live and self.makers.get(r) in self.remembered.recomputed]
        if not missing:
            return
        run = self._run_of(self.makers[missing[0]]) - self.rebuilt
        if not run:
            return
        self.rebuilt |= run
        wanted = {r for i in range(index + 1) for r in self.needs[i] if r not in self.live and self.makers.get(r) in run}
        again = {r: self.walk.size(r) for r in wanted}
        base = summed(self.gradients.values())
        passing = set(self.live) - self._needed(index + 1)
        staying = {r: size for r, size in {**self.live, **again}.items() if r not in passing}
        for moment in self.walk.forward(sorted(run), staying, (), self.live, passing):
            self.found.append(Moment(f"{moment.kernel}, again", moment.activations + base, self.of_parameters))
        self.live = {r: size for r, size in self.live.items() if r not in passing} | again

    def _run_of(self, index: int) -> set[int]:
        """The operations that run again together: all of a region that is the whole block, else neighbours."""
        again = self.remembered.recomputed
        first = last = index
        while first - 1 in again:
            first -= 1
        while last + 1 in again:
            last += 1
        return set(again) if self.whole else set(range(first, last + 1))

    def _transpose(self, index: int, op: Op, arrived: list[str]) -> None:
        walk = self.walk
        source = op.inputs[0] if op.inputs else ""
        if op.is_view:
            whole = len(arrived) == 1 and (len(op.outputs) == 1 or self.block.tensors[arrived[0]].kind != "activation")
            new = self.gradients[arrived[0]] if whole else walk.gradient(source)
            if not whole:
                self._note(op.name, new)
            for name in arrived:
                del self.gradients[name]
            self._add(source, new)
            return
        if op.kind in REDISTRIBUTIONS or OPERATIONS[op.kind].transpose == "free":
            whole = OPERATIONS[op.kind].transpose in ("none", "free")
            new = self.gradients[arrived[0]] if whole else walk.gradient(source)
            if not whole:
                self._note(op.name, new)
            for name in arrived:
                del self.gradients[name]
            self._add(source, new)
            return
        if OPERATIONS[op.kind].transpose in ("shared", "shared_first"):
            self._share(op.inputs[:1] if OPERATIONS[op.kind].transpose == "shared_first" else op.inputs, arrived)
        elif self.op_by_op and OPERATIONS[op.kind].hands_on:
            self._share(op.inputs, arrived)
            return
        gathered, twice, of_op = self._gathered_again(op), [], ZERO
        for kernel in self.kernels.get(index, ()) or self._through_statistics(index, op):
            linear = of_linear_module(op.kind, op.attrs)
            if kernel.label == "wgrad" and linear and self.delayed in ("all", op.module):
                self.waiting[index] = {t: self.gradients[t] for t in arrived}
                continue
            made = {t: walk.gradient(t) for t in kernel.writes if self.block.tensors[t].kind == "activation"}
            made |= {t: walk.gradient(t) for t in op.inputs if t in self.statistics}
            latest = summed(walk.gradient(t) for t in kernel.writes if self.block.tensors[t].kind == "parameter")
            if (linear and self.into_main_gradient) or (isinstance(op.attrs, LinearCrossEntropy) and op.attrs.adds):
                latest = ZERO
            for name in self._become_gradients(op, made):
                self.live.pop(name, None)
            self._note(f"{op.name}, {kernel.label}", summed(made.values()) + gathered + _inside(self, op, kernel.label), latest)
            if kernel.label == "wgrad" and op.kind in PRODUCTS and op.of(Projection).pieces != ONE:
                # the first sum of two pieces' gradients lies beside both (torch autograd input_buffer.cpp, which adds where it may from then on)
                gone = 2 / op.of(Projection).pieces * summed(self.gradients[t] for t in arrived)
                self._note(f"{op.name}, sum of pieces", summed(made.values()) + 2 * latest - gone, latest)
            self.of_parameters, of_op = self.of_parameters + latest, of_op + latest
            twice += [name for name in made if name in self.gradients]
            for name, size in made.items():
                self._add(name, size)
        self._sum_up(index, op, twice, arrived, of_op)

    def _sum_up(self, index: int, op: Op, twice: Iterable[str], arrived: Iterable[str], latest: Expr) -> None:
        """A second gradient of a tensor is added to the first, and the sum lies beside both, as the operation has let go of what it was given
        (torch autograd engine.cpp, input_buffer.cpp; further ones are added to the sum where that lies)."""
        first = [name for name in twice if name not in self.summed and name not in self.statistics]
        if not self.op_by_op or not first:
            return
        self.summed |= set(first)
        needed = self._needed(index)
        gone = summed(self.gradients[t] for t in arrived) + summed(size for root, size in self.live.items() if root not in needed)
        held = summed((*self.live.values(), *self.gradients.values())) + 2 * summed(self.walk.gradient(t) for t in first)
        self.found.append(Moment(f"{op.name}, sum", held - gone, self.of_parameters, latest))

    def _share(self, added: Iterable[str], arrived: list[str]) -> None:
        """One gradient for all that is added: it lives until the last of them is through, which was made first. What was added in another type
        has a copy of its own."""
        tensors, last = self.block.tensors, self.gradients[arrived[0]]
        for name in sorted((t for t in added if tensors[t].gradient), key=lambda t: self.makers.get(self.walk.root(t), -1)):
            if self.op_by_op and tensors[name].dtype != tensors[arrived[0]].dtype:
                self._add(name, self.walk.gradient(name))
                continue
            self._add(name, last)
            last = ZERO

    def _through_statistics(self, index: int, op: Op) -> list[BackwardOp]:
        """What leads from a statistic's gradient back to what it is of."""
        tensors = self.block.tensors
        if not self.op_by_op or OPERATIONS[op.kind].transpose != "kernel":
            return []
        return [BackwardOp("backward", index, (), (), tuple(t for t in op.inputs if tensors[t].kind == "activation" and tensors[t].gradient))]

    def _become_gradients(self, op: Op, made: Iterable[str]) -> list[str]:
        """Saved tensors that a loss writes gradients over, or that are the gradients."""
        if isinstance(op.attrs, LinearCrossEntropy):
            return [self.walk.root(t) for t in op.saves] if op.attrs.at_once else []
        return [self.walk.root(t) for t in made if OPERATIONS[op.kind].inner == "softmax"]

    def _add(self, name: str, size: Expr) -> None:
        """A second gradient of one tensor is added to the first where that lies."""
        self.gradients.setdefault(name, size)

    def _release(self, index: int) -> None:
        """Free what no earlier operation needs, neither for its backward nor to run again; a checkpoint holds what it was given to its end."""
        needed = self._needed(index)
        for root in [r for r in self.live if r not in needed]:
            del self.live[root]

    def _needed(self, index: int) -> set[str]:
        """What the backward of operations before this one needs, or what runs again for it."""
        needed = {r for i in (*range(index), *self.waiting) for r in self.needs[i]}
        needed |= {r for i in self.remembered.recomputed - self.rebuilt for r in self.walk.own(self.block.ops[i].inputs)}
        return needed | (set(self.walk.own(self.block.inputs)) if self.whole else set())


def _node(op: Op) -> str:
    """The part of a layer whose weight gradients are delayed together: the experts or the dense feed-forward layer, and all
    before them, shared experts included (Megatron-Core model_chunk_schedule_plan.py)."""
    return "mlp" if op.module in ("experts", "mlp") else "before"


def _inside(backward: _Backward, op: Op, label: str) -> Expr:
    """What a kernel's backward allocates besides its results: PyTorch's cross entropy is two operations, and the first
    one's gradient has the size of the log-softmax (aten nll_loss_backward, _log_softmax_backward_data)."""
    if label in ("dgrad", DEQUANTISE):
        return stored.beside_backward(backward.walk.placed, op, making=label == DEQUANTISE)
    if isinstance(op.attrs, LinearCrossEntropy):
        return linear_loss.beside_backward(backward.walk.placed, op)
    if isinstance(op.attrs, CrossEntropy):
        return summed(backward.walk.size(t) for t in op.attrs.inside)
    return _between(backward, op) if backward.op_by_op else ZERO


def _between(backward: _Backward, op: Op) -> Expr:
    """What lies between PyTorch's operations of a derivative: what its formula makes on its way, and, of an operand that was repeated along
    some dimensions, its gradient before it is summed over them (torch csrc/autograd/FunctionsManual.cpp, engine.cpp validate_outputs)."""
    walk, row = backward.walk, OPERATIONS[op.kind]
    whole = walk.gradient(op.outputs[0])
    tensors = walk.placed.block.tensors
    result = set(tensors[op.outputs[0]].dims)
    repeated = [t for t in op.inputs if row.keeps == "partners" and tensors[t].gradient and set(tensors[t].dims) < result]
    return (row.between + len(repeated)) * whole
