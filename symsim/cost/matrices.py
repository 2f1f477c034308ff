"""The trained weights of one rank of stage i, each with its shape as a matrix: what optimizers look at that do not take every number by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from symsim.algebra.expr import ONE, Expr, product, symbol
from symsim.algebra.kinds import EMBEDDING
from symsim.cost.count import counted_parameters
from symsim.frameworks.eager_modules import module_code
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.ir.block import Tensor
from symsim.ir.operations import Projection, of_role
from symsim.ir.roles import role_of
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import elements
from symsim.lowering.lowered import Lowered
from symsim.pipeline.stages import holds
from symsim.placement.mesh import local_size


@dataclass(frozen=True)
class Weight:
    """A parameter of a rank, `times` on the stage: elements in all, and as `count` matrices of rows and columns (rows ONE: a vector). split:
    whether tensor parallelism cuts its rows or its columns. vocabulary: a table (of positions, too) or the output layer. looked_up: rows of it are
    read, and nothing is multiplied by it (torch.nn.Embedding). stored: a matrix as modelling code stores it alone; no product reads it as one."""

    elements: Expr
    times: Expr
    expert: bool
    count: Expr = ONE
    rows: Expr = ONE
    columns: Expr = ONE
    split: str = ""
    vocabulary: bool = False
    looked_up: bool = False
    stored: bool = False

    @property
    def matrix(self) -> bool:
        return self.rows != ONE and self.columns != ONE and not self.stored


def weights_of(lowered: Lowered) -> Iterator[Weight]:
    """Every trained parameter of a rank of stage i, by the symbols of how often the stage holds it."""
    for name, remembered in lowered.blocks.items():
        placed = remembered.placed
        kept = placed.block.parameters() if role_of(name).behind else counted_parameters(placed)
        for tensor in (t for t in kept if t.gradient):
            times = symbol(holds(name))
            if role_of(name).behind and tensor.module == "lm_head":
                times = symbol("loss_i" if tensor.role == "bias" else "output_i")
            weight = _as_stored(lowered, placed, tensor, _weight(placed, tensor, times))
            apart = _heads_apart(lowered, placed, tensor)
            yield from (replace(weight, elements=n * weight.columns, rows=n) for n in apart) if weight.matrix and apart else (weight,)


# what no product reads and is stored as a matrix all the same: by what its rows count (experts' biases, states' decays, positions of an entry), and
# the taps of a convolution, a matrix of one row for every channel (torch.nn.Conv1d)
_ROWS = frozenset({"E", "D_i", "m_x"})
_TAPS = frozenset({"W_c", "W_i", "W_l", "W_m"})
_HEADS = {"q_proj", "k_proj", "v_proj"}
# linear modules of a list, which one product stands for (Gemma3nTextModel altup_projections)
_MODULES = "n_e"


def _as_stored(lowered: Lowered, placed: Placed, tensor: Tensor, weight: Weight) -> Weight:
    """The same as the family's modules store it: linear modules of a list apart, a matrix of heads' norms, experts in one matrix."""
    code, layout = module_code(lowered.profile.model), placed.layouts[tensor.name]

    def local(dim: str) -> Expr:
        return local_size(placed.mesh, placed.block, dim, layout.get(dim, ()))

    if _MODULES in tensor.dims:
        modules = local(_MODULES)
        return replace(weight, elements=weight.elements / modules, times=weight.times * modules, rows=weight.rows / modules)
    if code.centred_norm and tensor.module == "norm" and len(tensor.dims) > 1:
        return replace(weight, rows=local(tensor.dims[0]), columns=local(tensor.dims[1]), stored=True)
    if code.experts_in_rows and weight.expert and weight.matrix and lowered.profile.strategy.fusion == "eager":
        # gate and up apart; what a product sums over stands in rows too, but for the width of the stream
        width, apart = local("h"), 2 if tensor.dims[-1] == "h" else 1
        each = weight.elements / apart
        return replace(weight, elements=each, times=weight.times * apart, count=ONE, rows=each / width, columns=width)
    return weight


def _heads_apart(lowered: Lowered, placed: Placed, tensor: Tensor) -> list[Expr]:
    """Rows of queries, keys and values on a rank, where one weight holds them and Muon takes each by itself (Megatron-Core optimizer/muon.py
    is_qkv_fn); else none."""
    strategy, block = lowered.profile.strategy, placed.block
    if not (OPTIMIZERS[strategy.optimizer].orthogonal and strategy.muon_split_qkv and strategy.fusion == "te"):
        return []
    op = next((o for o in block.ops if o.einsums and tensor.name in o.inputs and _HEADS <= set(o.of(Projection).labels)), None)
    made = set(op.outputs) if op else set()
    views = next((o for o in block.ops if o.kind in of_role("view") and made & set(o.inputs)), None)
    if op is None or views is None or len(views.outputs) < len(_HEADS):
        return []
    batch = {d for d in op.einsums[0].result if d in op.einsums[0].operands[0]}
    named = ([d for d in block.tensors[t].dims if d not in batch] for t in views.outputs)
    return [product(local_size(placed.mesh, block, d, placed.layouts[t].get(d, ())) for d in dims) for t, dims in zip(views.outputs, named)]


def _weight(placed: Placed, tensor: Tensor, times: Expr) -> Weight:
    """Rows are what the product makes, columns what it sums over; of a table, tokens and the width of the stream."""
    expert = tensor.module == "experts"
    says = next((e for op in placed.block.ops for e in op.einsums if tensor.name in op.inputs and set(e.operands[1]) == set(tensor.dims)), None)
    held = elements(placed, tensor.name)
    looked_up = says is None and tensor.module == EMBEDDING and len(tensor.dims) > 1
    vocabulary = "V" in tensor.dims or tensor.role == "table" or looked_up
    first, rest = tensor.dims[0], list(tensor.dims[1:])
    stored = says is None and not vocabulary
    if not rest or (stored and first not in _ROWS and _TAPS.isdisjoint(rest)):
        return Weight(held, times, expert, vocabulary=vocabulary, looked_up=looked_up)
    chosen = [d for d, _ in says.chosen] if says else [] if _TAPS.isdisjoint(rest) else [first]
    columns = list(says.contracted) if says else rest
    rows = [d for d in tensor.dims if d not in (*chosen, *columns)]
    if not rows and not stored:
        return Weight(held, times, expert, vocabulary=vocabulary)
    layout = placed.layouts[tensor.name]

    def local(dims: list[str]) -> Expr:
        return product(local_size(placed.mesh, placed.block, d, layout.get(d, ())) for d in dims)

    tensor_axes = {"tp", "etp"}
    split = next((side for side, dims in (("rows", rows), ("columns", columns)) if any(tensor_axes & set(layout.get(d, ())) for d in dims)), "")
    made = Weight(held, times, expert, local(chosen), local(rows), local(columns), split, vocabulary, looked_up, stored)
    return replace(made, stored=stored or made.rows == ONE or made.columns == ONE)
