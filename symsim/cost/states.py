"""Bytes of what an optimizer keeps, on one rank of stage i: of every parameter alike, or from the shapes of its matrices."""

from __future__ import annotations

from fractions import Fraction

from symsim.algebra.expr import ONE, ZERO, Expr, ceil, expr, maximum, minimum
from symsim.algebra.formula import Derivation
from symsim.algebra.key import of_stage
from symsim.algebra.quantity import ELEMENT, Quantity
from symsim.cost.compressed import error_bytes
from symsim.cost.held import trained_part
from symsim.cost.matrices import Weight, weights_of
from symsim.cost.reduce import expert_groups, shards
from symsim.frameworks.choices import FRAMEWORKS
from symsim.inputs.optimizers import BLOCKS, OPTIMIZERS, SMALLEST_IN_BLOCKS, Moment, bytes_of_blocks
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS
from symsim.lowering.lowered import Lowered


def main_type(strategy: Strategy) -> str:
    """The type of the copy that the optimizer updates: fp32 unless told."""
    return strategy.main_params_dtype or "fp32"


def parameter_type(strategy: Strategy) -> str:
    """The type of trained parameters as the model has them: under autocast that in which they are updated."""
    return main_type(strategy) if strategy.autocast else strategy.precision


def copy_bytes(strategy: Strategy, *, updates_parameters: bool = False) -> int | Fraction:
    """Bytes a parameter of the copy that is updated, in its own type (none where it updates the parameters themselves). A bf16 parameter's
    fp32 copy needs only the other 16 bits (store_param_remainders), where the update keeps it."""
    main = main_type(strategy)
    copy = 0 if main == parameter_type(strategy) or updates_parameters else WIDTHS[main]
    shared = strategy.store_param_remainders and strategy.use_precision_aware_optimizer and not kept_beside_update(strategy)
    return 2 if copy == 4 and strategy.precision == "bf16" and shared else copy


def kept_beside_update(strategy: Strategy) -> bool:
    """Whether Megatron-Core keeps the fp32 copy, and hands fp32 gradients to an update that could do without both: TransformerEngine's Adam
    writes no recipe's weights but those of delayed scaling (optimizer_config.py use_precision_aware_optimizer_no_fp8_or_ds_fp8)."""
    sharded = FRAMEWORKS[strategy.fusion].main_gradients and strategy.zero < 3
    other = strategy.fp8 not in ("none", "delayed")
    return sharded and other and main_type(strategy) == "fp32" and not strategy.optimizer_cpu_offload


def moment_bytes(strategy: Strategy, moments: tuple[Moment, ...]) -> int | Fraction:
    """Bytes an element of these moments together."""
    if strategy.optimizer_bits != 32:
        return len(moments) * bytes_of_blocks(strategy.optimizer_bits)
    types = {"first": strategy.exp_avg_dtype, "second": strategy.exp_avg_sq_dtype}
    # what factors a second moment works on an fp32 gradient, and keeps moments of it
    unsaid = "fp32" if OPTIMIZERS[strategy.optimizer].factors else main_type(strategy)
    return sum(WIDTHS[types[m] or unsaid] for m in moments)


def state_bytes(strategy: Strategy, *, updates_parameters: bool = False) -> int | Fraction:
    """Bytes a parameter of what the optimizer keeps of each alike: the copy, and its moments where those do not depend on shapes."""
    row = OPTIMIZERS[strategy.optimizer]
    return copy_bytes(strategy, updates_parameters=updates_parameters) + (0 if row.by_shape else moment_bytes(strategy, row.moments))


def states(lowered: Lowered, *, expert: bool, updates_parameters: bool = False) -> Expr:
    """Bytes of the optimizer's states of the experts, or of all others."""
    strategy = lowered.profile.strategy
    shard = shards(lowered, expert and expert_groups(lowered)).owners if lowered.mesh.placement.stores["optimizer states"] else ONE
    held = trained_part(lowered, "expert" if expert else "dense")
    alike = held * state_bytes(strategy, updates_parameters=updates_parameters) / shard + error_bytes(lowered, expert=expert)
    if strategy.fp32_embedding_moments and not expert:
        alike = alike + _wider(strategy) * sum((w.elements * w.times for w in weights_of(lowered) if w.looked_up), ZERO) / shard
    row = OPTIMIZERS[strategy.optimizer]
    if row.orthogonal:
        first, others = moment_bytes(strategy, row.moments), moment_bytes(strategy, OPTIMIZERS[strategy.muon_scalar_optimizer].moments)
        apart = of_stage("P_scalar", "expert" if expert else "dense").expr if others != first and scalars(lowered, expert=expert) else ZERO
        return alike + (held * first + apart * (others - first)) / shard
    if not row.by_shape:
        return alike + beside_blocks(lowered, expert=expert)
    return alike + sum((_of_weight(strategy, w, shard) * w.times for w in weights_of(lowered) if w.expert == expert), ZERO)


def scalars(lowered: Lowered, *, expert: bool) -> Expr:
    """Elements of one rank of stage i that an update of matrices takes one by one: of experts, or all others."""
    kept = (w for w in weights_of(lowered) if w.expert == expert and not taken_as_matrix(lowered.profile.strategy, w))
    return sum((w.elements * w.times for w in kept), ZERO)


def define_scalars(book: Derivation, lowered: Lowered) -> None:
    """Names them, as the two optimizers have states of their own."""
    if not OPTIMIZERS[lowered.profile.strategy.optimizer].orthogonal:
        return
    for part, expert, word in (("dense", False, "nonexpert"), ("expert", True, "expert")):
        if found := scalars(lowered, expert=expert):
            whose = "expert parameters of one rank of stage i" if expert else "parameters of one rank of stage i outside experts"
            meaning = f"trained {whose} that are no matrix of the update"
            latex = rf"P^{{(i)}}_{{\mathrm{{{word},scalar}}}}"
            book.define(of_stage("P_scalar", part), Quantity(found, ELEMENT), meaning, unit=ELEMENT, latex=latex)


def _wider(strategy: Strategy) -> int | Fraction:
    """Bytes an element that moments in fp32 have more than those in blocks (transformers trainer.py create_optimizer, optim_bits of nn.Embedding)."""
    return len(OPTIMIZERS[strategy.optimizer].moments) * (4 - bytes_of_blocks(strategy.optimizer_bits))


def beside_blocks(lowered: Lowered, *, expert: bool) -> Expr:
    """Bytes of the moments of the experts, or of all others, that whole blocks leave out; none where moments have no blocks."""
    strategy = lowered.profile.strategy
    if strategy.optimizer_bits == 32 or OPTIMIZERS[strategy.optimizer].by_shape:
        return ZERO
    shard = shards(lowered, expert and expert_groups(lowered)).owners if lowered.mesh.placement.stores["optimizer states"] else ONE
    return sum((_beside_blocks(strategy, w) * w.times for w in weights_of(lowered) if w.expert == expert), ZERO) / shard


def _beside_blocks(strategy: Strategy, weight: Weight) -> Expr:
    """Bytes of a weight's moments that whole blocks leave out: tensors of few numbers stay in fp32, and a last block that is not full has a
    scale too (bitsandbytes optim/optimizer.py init_state); in 4 bits what is no multiple of a block stays in fp32 (torchao optim/adam.py)."""
    if strategy.fp32_embedding_moments and weight.looked_up:
        return ZERO
    bits, n = strategy.optimizer_bits, weight.elements
    begun = ceil(n / BLOCKS[bits])
    in_blocks = minimum(1, maximum(0, n - (SMALLEST_IN_BLOCKS - 1)))
    if bits == 4:
        in_blocks = in_blocks * (1 - minimum(1, begun * BLOCKS[bits] - n))
    of_last = 4 * (begun - n / BLOCKS[bits])
    beside = (1 - in_blocks) * (4 - bytes_of_blocks(bits)) * n + in_blocks * of_last
    return len(OPTIMIZERS[strategy.optimizer].moments) * beside


def taken_as_matrix(strategy: Strategy, weight: Weight) -> bool:
    """Whether the optimizer sees rows and columns of a weight."""
    row = OPTIMIZERS[strategy.optimizer]
    return row.by_shape and (weight.matrix or (row.factors > 0 and weight.stored)) and not (row.hidden and weight.vocabulary)


def rank_of_projection(strategy: Strategy, weight: Weight) -> Expr:
    """Rows of a projected gradient: optimizer_rank, and of singular vectors no more than the matrix has."""
    asked = expr(strategy.optimizer_rank)
    return asked if OPTIMIZERS[strategy.optimizer].random else minimum(asked, minimum(weight.rows, weight.columns))


def _of_weight(strategy: Strategy, weight: Weight, shard: Expr) -> Expr:
    """Bytes of one weight's states besides its copy. Rows are sharded; what there is a number a column of is whole on every rank, and so is a
    projector."""
    row = OPTIMIZERS[strategy.optimizer]
    assert row.others is not None
    if not taken_as_matrix(strategy, weight):
        return weight.elements * moment_bytes(strategy, row.others) / shard
    found = weight.elements * moment_bytes(strategy, row.moments) / shard
    found = found + row.factors * 4 * weight.count * (weight.rows / shard + weight.columns)
    if row.projected:
        each = moment_bytes(strategy, ("first",))
        shorter, rank = minimum(weight.rows, weight.columns), rank_of_projection(strategy, weight)
        found = found + row.projected * each * weight.count * rank * (weight.rows + weight.columns - shorter) / shard
        found = found + (WIDTHS[main_type(strategy)] * weight.count * rank * shorter if row.projector else ZERO)
    return found
