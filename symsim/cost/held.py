"""Parameters that a rank of a stage holds and trains, as sums of those of its blocks."""

from __future__ import annotations

from symsim.algebra.expr import ZERO, Expr, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import of_block, of_stage
from symsim.algebra.kinds import HEAD
from symsim.algebra.quantity import ELEMENT, Quantity, total
from symsim.cost.mirrored import of_other
from symsim.inputs.traced import once
from symsim.ir.block import MODULES
from symsim.ir.roles import role_of
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import elements
from symsim.lowering.lowered import Lowered
from symsim.pipeline.schedules import schedule_of
from symsim.pipeline.stages import holds


def some_frozen(lowered: Lowered) -> bool:
    """Whether any parameter is not trained."""
    return any(not t.gradient for b in lowered.blocks.values() for t in b.placed.block.parameters())


def trained_of(book: Derivation, letter: str, block: str, module: str) -> Expr:
    """Trained parameters of a block's module: N of the model, P held by one rank."""
    own = of_block(f"{letter}_trained", block, module=module)
    if own not in book:
        return of_block(letter, block, module=module).expr
    return own.expr if book[own].expr else ZERO


def trained_part(lowered: Lowered, part: str) -> Expr:
    """The trained parameters of a rank of stage i: its dense part, or those of experts."""
    return of_stage("P_trained" if some_frozen(lowered) else "P", part).expr


def trained_output_layer(book: Derivation, lowered: Lowered) -> Expr:
    """Elements of the output layer that one rank of stage i holds and trains."""
    weights = (t for t in lowered.blocks[HEAD].placed.block.parameters() if t.module == "lm_head")
    return held_output_layer(book) if all(t.gradient for t in weights) else ZERO


def before_output(book: Derivation) -> list[str]:
    """Modules with parameters in the head's block that come before the output layer: its norm, a projection."""
    return [m for m in MODULES if m != "lm_head" and of_block("P", HEAD, module=m) in book]


def _output_layer(book: Derivation, placed: Placed) -> None:
    """The table of the output layer, which a tied head does not hold where the embedding is, and its bias, which it does; 0 without one."""
    if not any(t.module == "lm_head" for t in placed.block.parameters()):
        none = Quantity(ZERO, ELEMENT)
        book.define(of_stage("P_output"), none, "table of the output layer held by one rank", unit=ELEMENT, latex=r"P_{\mathrm{output}}")
    for tensor in placed.block.parameters():
        if tensor.module == "lm_head":
            bias = tensor.role == "bias"
            book.define(
                of_stage("P_output", "bias" if bias else ""),
                Quantity(elements(placed, tensor.name), ELEMENT),
                f"{'bias' if bias else 'table'} of the output layer held by one rank",
                unit=ELEMENT,
                latex=r"P_{\mathrm{output,bias}}" if bias else r"P_{\mathrm{output}}",
            )


def held_output_layer(book: Derivation) -> Expr:
    """Elements of the output layer that one rank of stage i holds."""
    table, bias = of_stage("P_output").expr * symbol("output_i"), of_stage("P_output", "bias")
    return table + bias.expr * symbol("loss_i") if bias in book else table


@once
def stage_parameters(book: Derivation, lowered: Lowered) -> None:
    """Parameters of one rank of stage i (Megatron-Core gpt_model.py): the embedding also where MTP is, the head's own
    table unless tied on the stage of the embedding, the final norm with the loss (with MTP: with the last decoder layer)."""
    dense: list[Quantity] = []
    expert: list[Quantity] = []
    for n in lowered.blocks:
        for module in MODULES:
            own = of_block("P", n, module=module)
            if role_of(n).behind and module == "lm_head":
                _output_layer(book, lowered.blocks[n].placed)
                dense.append(Quantity(held_output_layer(book), ELEMENT))
            elif own in book:
                (expert if module == "experts" else dense).append(Quantity(own.expr, ELEMENT) * symbol(holds(n)))
    book.define(
        of_stage("P", "dense"),
        total(dense, ELEMENT),
        "parameters of one rank of stage i outside experts",
        unit=ELEMENT,
        # a kind of layers may be called dense
        latex=r"P^{(i)}_{\mathrm{nonexpert}}",
    )
    book.define(
        of_stage("P", "expert"),
        total(expert, ELEMENT),
        "expert parameters of one rank of stage i",
        unit=ELEMENT,
        latex=r"P^{(i)}_{\mathrm{expert}}",
    )
    both, meaning = of_stage("P", "dense").expr + of_stage("P", "expert").expr, "parameters of one rank of stage i"
    if schedule_of(lowered.profile.strategy).mirrored:
        both, meaning = both + of_other(book, lowered.profile.model, both), f"{meaning}, and of stage j = pp - 1 - i, which it holds too"
    book.define(of_stage("P"), Quantity(both, ELEMENT), meaning, unit=ELEMENT, latex=r"P^{(i)}")
    if some_frozen(lowered):
        _stage_trained(book, lowered)


def _stage_trained(book: Derivation, lowered: Lowered) -> None:
    """The trained parameters of one rank of stage i: what has gradients, and states of the optimizer."""
    for part, word, what in (
        ("dense", "nonexpert", "trained parameters of one rank of stage i outside experts"),
        ("expert", "expert", "trained expert parameters of one rank of stage i"),
    ):
        found = ZERO if part == "expert" else trained_output_layer(book, lowered)
        for n in lowered.blocks:
            own = [m for m in MODULES if of_block("P", n, module=m) in book and (m == "experts") == (part == "expert")]
            found = found + sum((trained_of(book, "P", n, m) * symbol(holds(n)) for m in own if not (role_of(n).behind and m == "lm_head")), ZERO)
        latex = rf"P^{{(i)}}_{{\mathrm{{{word},trained}}}}"
        book.define(of_stage("P_trained", part), Quantity(found, ELEMENT), what, unit=ELEMENT, latex=latex)
