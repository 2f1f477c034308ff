"""count: blocks -> named definitions, exact.

For every block: parameters by module, FLOPs of each operation (of the whole model, and as executed by one rank),
HBM bytes, saved bytes by tensor. Then the totals: of the model, and of pipeline stage `i`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from symsim.algebra.expr import ONE, ZERO, Expr, expr, product, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import BYTE, ELEMENT, FLOP, Quantity, total
from symsim.cost.hbm import backward_bytes, forward_bytes
from symsim.frameworks.kernels import Profile
from symsim.ir.block import WIDTHS, Tensor
from symsim.ir.operations import OPERATIONS, PRODUCTS, UNCOUNTED, Lookup, Operation, Projection
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import elements
from symsim.lowering.lowered import Lowered
from symsim.lowering.remember import Remembered
from symsim.pipeline.stages import holds, runs, stage_layer_formula
from symsim.placement.mesh import local_size
from symsim.placement.sizes import capacity, keys_per_query

MODULES = ("embedding", "attention", "mlp", "experts", "shared_experts", "router", "norm", "lm_head", "mtp", "loss")


@dataclass(frozen=True)
class Counted:
    """The definitions, and which name holds what: `ops[block]` lists (operation index, its forward definition)."""

    derivation: Derivation
    ops: dict[str, list[tuple[int, str]]]


def ascii_name(*parts: str) -> str:
    return re.sub(r"\W+", "_", "_".join(parts)).strip("_")


def label(text: str) -> str:
    """Text as an upright subscript; underscores stay as many as they are, since names differ in them."""
    return r"\mathrm{" + re.sub(r"_*\W[_\W]*|_", r"\\_", text).strip("\\_") + "}"


def count(lowered: Lowered) -> Counted:
    """Definitions in the order in which a reader meets them: sizes, blocks, model totals, stage totals."""
    made = Counted(Derivation(), {})
    _derived_sizes(made.derivation, lowered)
    for name, remembered in lowered.blocks.items():
        _block(made, name, remembered, lowered.profile)
    for name, remembered in lowered.checkpointed.items():
        _recomputation(made, name, remembered, suffix="ckpt")
    _model_totals(made.derivation, lowered)
    _stage_totals(made.derivation, lowered)
    return made


def _derived_sizes(book: Derivation, lowered: Lowered) -> None:
    model, strategy, assume = lowered.profile.model, lowered.profile.strategy, lowered.profile.assumptions
    packed = strategy.packed_document_length is not None
    reaches = {model.layer_kinds[k].reach for k in model.kind_names()}
    for reach, name, meaning in (
        ("all", "n_z", "mean number of keys a query attends to"),
        ("window", "n_w", "the same inside a window"),
        ("chunk", "n_c", "the same inside a chunk of attention"),
    ):
        if reach in reaches:
            keys = Quantity(keys_per_query(assume["causal"], reach, packed))
            book.define(name, keys, meaning, latex=name, assumptions=("causal",), group="sizes")
    if strategy.moe_pad_expert_input_to_capacity and model.moe:
        book.define(
            "C",
            Quantity(capacity(strategy, lowered.mesh)),
            "rows an expert takes from one rank",
            latex="C",
            source="megatron.core transformer/moe/moe_utils.py get_capacity",
            group="sizes",
        )
    for kind, layers in (stage_layer_formula(model, strategy) or {}).items():
        book.define(
            f"L_{kind}_of_i",
            Quantity(layers),
            f"{in_words(kind)} layers on stage i",
            latex=rf"L^{{(i)}}_{{{label(kind)}}}",
            group="stages",
            source="the even split, rounded down at every boundary; Megatron-Core asks for an explicit layout where L is uneven",
        )


def flops(placed: Placed, index: int, products: Iterable[tuple[str, ...]], *, local: bool) -> Quantity:
    """2 FLOP a multiply-add, of one rank (local) or of the whole model for one micro-batch."""
    block, layout = placed.block, placed.iteration[index]
    result = ZERO
    for dims in products:
        result = result + 2 * product(local_size(placed.mesh, block, d, layout.get(d, ())) if local else block.dims[d].whole_model for d in dims)
    return Quantity(result, FLOP)


def _block(made: Counted, name: str, remembered: Remembered, profile: Profile) -> None:
    book, placed = made.derivation, remembered.placed
    block = placed.block
    _parameters(book, name, placed)
    made.ops[name] = []
    forward: list[Quantity] = []
    executed: list[Quantity] = []
    moved: list[Quantity] = []
    for index, op in enumerate(block.ops):
        if op.kind in UNCOUNTED:
            continue
        if op.products:
            made.ops[name].append((index, ascii_name("F", name, op.name)))
            for letter, found, where in (("F", forward, ""), ("X", executed, ", on one rank")):
                found.append(
                    book.define(
                        ascii_name(letter, name, op.name),
                        flops(placed, index, op.products, local=letter == "X"),
                        f"{op.name}, forward{where}",
                        unit=FLOP,
                        group=name,
                        latex=rf"{letter}_{{{label(op.name)}}}",
                        assumptions=OPERATIONS[op.kind].counted_by,
                    )
                )
        moved.append(
            book.define(
                ascii_name("Q", name, op.name),
                forward_bytes(placed, index, profile),
                f"{op.name}, bytes read and written on one rank",
                unit=BYTE,
                group=name,
                latex=rf"Q_{{{label(op.name)}}}",
            )
        )
    title, words = label(name), in_words(name)
    book.define(f"F_{name}", total(forward, FLOP), f"{words}: forward", unit=FLOP, group=name, latex=f"F_{{{title}}}")
    book.define(f"X_{name}", total(executed, FLOP), f"{words}: forward on one rank", unit=FLOP, group=name, latex=f"X_{{{title}}}")
    book.define(f"Q_{name}", total(moved, BYTE), f"{words}: HBM bytes of forward on one rank", unit=BYTE, group=name, latex=f"Q_{{{title}}}")
    _backward(book, name, remembered, profile, title)
    _recomputation(made, name, remembered)


def assumed(placed: Placed, of: Callable[[Operation], tuple[str, ...]]) -> tuple[str, ...]:
    """Assumptions behind a block's operations, by their kinds, in the order of the table."""
    present = {op.kind for op in placed.block.ops}
    return tuple(dict.fromkeys(a for kind, row in OPERATIONS.items() if kind in present for a in of(row)))


def _backward(book: Derivation, name: str, remembered: Remembered, profile: Profile, title: str) -> None:
    placed = remembered.placed
    whole, local, moved = [], [], []
    for kernel in remembered.differentiated.backward:
        op = placed.block.ops[kernel.forward]
        moved.append(
            book.define(
                ascii_name("U", name, op.name, kernel.label),
                backward_bytes(placed, kernel, profile),
                f"{op.name}, {kernel.label}, bytes read and written on one rank",
                unit=BYTE,
                group=name,
                latex=rf"U^{{\mathrm{{{kernel.label}}}}}_{{{label(op.name)}}}",
            )
        )
        if not kernel.products:
            continue
        if op.kind in PRODUCTS:
            whole.append(Quantity(symbol(ascii_name("F", name, op.name)), FLOP))
            local.append(Quantity(symbol(ascii_name("X", name, op.name)), FLOP))
        else:
            whole.append(flops(placed, kernel.forward, kernel.products, local=False))
            local.append(flops(placed, kernel.forward, kernel.products, local=True))
    rests_on, words = assumed(placed, lambda row: row.gradients_by + row.counted_by), in_words(name)
    book.define(
        f"G_{name}",
        total(whole, FLOP),
        f"{words}: backward (input and weight gradients)",
        unit=FLOP,
        group=name,
        latex=f"G_{{{title}}}",
        assumptions=rests_on,
    )
    book.define(f"Y_{name}", total(local, FLOP), f"{words}: backward on one rank", unit=FLOP, group=name, latex=f"Y_{{{title}}}")
    book.define(f"U_{name}", total(moved, BYTE), f"{words}: HBM bytes of backward on one rank", unit=BYTE, group=name, latex=f"U_{{{title}}}")


def _recomputation(made: Counted, name: str, remembered: Remembered, suffix: str = "") -> None:
    """Recomputed FLOPs and saved bytes, of the block as the strategy recomputes it."""
    book, placed = made.derivation, remembered.placed
    again = [i for i in sorted(remembered.recomputed) if placed.block.ops[i].products]
    tag, title = (f"{name}_{suffix}", f"{label(name)},\\mathrm{{{suffix}}}") if suffix else (name, label(name))
    book.define(
        f"R_{tag}",
        total((Quantity(symbol(ascii_name("F", name, placed.block.ops[i].name)), FLOP) for i in again), FLOP),
        f"{in_words(name)}: computed again in backward",
        unit=FLOP,
        group=name,
        latex=f"R_{{{title}}}",
        assumptions=("recompute_early_stop",) if again else (),
    )
    book.define(
        f"Z_{tag}",
        total((Quantity(symbol(ascii_name("X", name, placed.block.ops[i].name)), FLOP) for i in again), FLOP),
        f"{in_words(name)}: computed again in backward, on one rank",
        unit=FLOP,
        group=name,
        latex=f"Z_{{{title}}}",
    )
    saved = []
    for item in remembered.saved:
        size = Quantity(item.elements, ELEMENT) * Quantity(expr(WIDTHS[item.tensor.dtype]), BYTE / ELEMENT)
        saved.append(
            book.define(
                ascii_name("A", tag, item.tensor.name),
                size,
                f"{item.tensor.name} kept for {', '.join(item.by)}",
                unit=BYTE,
                group=name,
                latex=rf"A_{{{label(item.tensor.name)}}}",
            )
        )
    book.define(
        f"A_{tag}",
        total(saved, BYTE),
        f"{in_words(name)}: bytes kept for backward on one rank",
        unit=BYTE,
        group=name,
        latex=f"A_{{{title}}}",
        assumptions=assumed(placed, lambda row: row.assumed),
    )
    shared = total((Quantity(i.bytes, BYTE) for i in remembered.shared), BYTE)
    if shared.expr:
        book.define(
            f"A_{tag}_shared",
            shared,
            f"{in_words(name)}: kept once for all layers (tables, masks)",
            unit=BYTE,
            group=name,
            latex=f"A^{{\\mathrm{{shared}}}}_{{{title}}}",
        )


def counted_parameters(placed: Placed) -> list[Tensor]:
    """Parameters a block owns: MTP reads the embedding and the head of the model; of a tied head the table is the embedding's, a bias its own."""
    borrowed = {t for op in placed.block.ops if isinstance(op.attrs, Projection | Lookup) for t in op.attrs.borrowed}
    return [t for t in placed.block.parameters() if t.name not in borrowed]


def parameter_elements(placed: Placed, tensor: Tensor, *, local: bool) -> Expr:
    if local:
        return elements(placed, tensor.name)
    return product(placed.block.dims[d].size for d in tensor.dims)


def _parameters(book: Derivation, name: str, placed: Placed) -> None:
    for module in MODULES:
        owned = [t for t in counted_parameters(placed) if t.module == module]
        if not owned:
            continue
        for prefix, local, where in (("N", False, ""), ("P", True, ", held by one rank")):
            book.define(
                f"{prefix}_{name}_{module}",
                total((Quantity(parameter_elements(placed, t, local=local), ELEMENT) for t in owned), ELEMENT),
                f"{in_words(name)}: {module} parameters{where}",
                unit=ELEMENT,
                group=name,
                latex=f"{prefix}_{{{label(name)},{label(module)}}}",
            )


def multiplicity(lowered: Lowered) -> dict[str, Expr]:
    """How often each block runs in the model: layers of a kind are a symbol, so totals do not depend on L."""
    model = lowered.profile.model
    return {n: symbol(f"L_{n}") if n in model.layer_kinds else symbol("D") if n == "mtp" else ONE for n in lowered.blocks}


def _defined(book: Derivation, names: Iterable[str]) -> list[str]:
    return [n for n in names if n in book.definitions]


def _model_totals(book: Derivation, lowered: Lowered) -> None:
    times = multiplicity(lowered)
    copies = {n: ONE if n == "mtp" and lowered.profile.model.mtp_use_repeated_layer else t for n, t in times.items()}
    modules = []
    for module in MODULES:
        parts = [Quantity(symbol(f"N_{n}_{module}"), ELEMENT) * copies[n] for n in lowered.blocks if f"N_{n}_{module}" in book.definitions]
        if parts:
            modules.append(
                book.define(f"N_{module}", total(parts, ELEMENT), f"{module} parameters", unit=ELEMENT, group="total", latex=f"N_{{{label(module)}}}")
            )
    book.define("N", total(modules, ELEMENT), "parameters", unit=ELEMENT, group="total", latex="N")
    if "N_experts" in book.definitions:
        idle = Quantity(symbol("N_experts"), ELEMENT) * (1 - symbol("K") / symbol("E"))
        book.define(
            "N_active",
            Quantity(symbol("N"), ELEMENT) - idle,
            "parameters a token uses (embeddings included)",
            unit=ELEMENT,
            group="total",
            latex=r"N_{\mathrm{active}}",
        )
    for prefix, meaning in (("F", "forward"), ("G", "backward")):
        parts = [Quantity(symbol(f"{prefix}_{n}"), FLOP) * times[n] for n in lowered.blocks]
        book.define(prefix, total(parts, FLOP), f"{meaning} FLOPs of the model, one micro-batch", unit=FLOP, group="total", latex=prefix)
    again = []
    for n in lowered.blocks:
        again.append(Quantity(symbol(f"R_{n}"), FLOP) * (times[n] - (symbol(f"L_{n}_ckpt") if n in lowered.checkpointed else 0)))
        if n in lowered.checkpointed:
            again.append(Quantity(symbol(f"R_{n}_ckpt"), FLOP) * symbol(f"L_{n}_ckpt"))
    book.define("R", total(again, FLOP), "FLOPs computed again in backward, one micro-batch", unit=FLOP, group="total", latex="R")


def _stage_totals(book: Derivation, lowered: Lowered) -> None:
    """Totals of one rank of stage i. Indicators: first_i, loss_i (holds the head), mtp_i (depths held)."""
    here = {n: symbol(runs(n)) for n in lowered.blocks}
    full = lowered.profile.strategy.recompute == "full"

    def stage(name: str, unit, prefix: str, meaning: str, latex: str) -> None:  # type: ignore[no-untyped-def]
        parts = []
        for n in lowered.blocks:
            plain = here[n] - (symbol(f"L_{n}_ckpt_i") if n in lowered.checkpointed else ZERO)
            if prefix in ("Z", "A") and n in lowered.checkpointed:
                parts.append(Quantity(symbol(f"{prefix}_{n}"), unit) * plain)
                if not (full and prefix == "A"):
                    parts.append(Quantity(symbol(f"{prefix}_{n}_ckpt"), unit) * symbol(f"L_{n}_ckpt_i"))
            else:
                parts.append(Quantity(symbol(f"{prefix}_{n}"), unit) * here[n])
        if prefix == "A":
            if full:
                parts.append(Quantity(symbol(f"A_{next(iter(lowered.checkpointed))}_ckpt"), unit) * symbol("checkpoints_i"))
            shared = _defined(book, [f"A_{n}{s}_shared" for n in lowered.blocks for s in ("_ckpt", "")])
            parts += [Quantity(symbol(s), unit) for s in shared[:1]]
        book.define(name, total(parts, unit), meaning, unit=unit, group="stages", latex=latex)

    stage("X_stage", FLOP, "X", "forward FLOPs of one rank of stage i, one micro-batch", r"X^{(i)}")
    stage("Y_stage", FLOP, "Y", "backward FLOPs of one rank of stage i, one micro-batch", r"Y^{(i)}")
    stage("Z_stage", FLOP, "Z", "FLOPs computed again by one rank of stage i, one micro-batch", r"Z^{(i)}")
    stage("Q_stage", BYTE, "Q", "HBM bytes of forward of one rank of stage i, one micro-batch", r"Q^{(i)}")
    stage("U_stage", BYTE, "U", "HBM bytes of backward of one rank of stage i, one micro-batch", r"U^{(i)}")
    stage("A_stage", BYTE, "A", "bytes one micro-batch keeps on one rank of stage i", r"A^{(i)}")
    _stage_parameters(book, lowered)


def _output_layer(book: Derivation, placed: Placed) -> None:
    """The table of the output layer, which a tied head does not hold where the embedding is, and its bias, which it does."""
    for tensor in placed.block.parameters():
        if tensor.module == "lm_head":
            bias = tensor.name.endswith(".bias")
            book.define(
                "P_output_bias" if bias else "P_output",
                Quantity(elements(placed, tensor.name), ELEMENT),
                f"{'bias' if bias else 'table'} of the output layer held by one rank",
                unit=ELEMENT,
                group="stages",
                latex=r"P_{\mathrm{output,bias}}" if bias else r"P_{\mathrm{output}}",
            )


def held_output_layer(book: Derivation) -> Expr:
    """Elements of the output layer that one rank of stage i holds."""
    table = symbol("P_output") * symbol("output_i")
    return table + symbol("P_output_bias") * symbol("loss_i") if "P_output_bias" in book.definitions else table


def _stage_parameters(book: Derivation, lowered: Lowered) -> None:
    """Parameters of one rank of stage i (Megatron-Core gpt_model.py): the embedding also where MTP is, the head's own
    table unless tied on the stage of the embedding, the final norm with the loss (with MTP: with the last decoder layer)."""
    dense: list[Quantity] = []
    expert: list[Quantity] = []
    for n in lowered.blocks:
        for module in MODULES:
            if n == "head" and module == "lm_head":
                _output_layer(book, lowered.blocks["head"].placed)
                dense.append(Quantity(held_output_layer(book), ELEMENT))
            elif f"P_{n}_{module}" in book.definitions:
                (expert if module == "experts" else dense).append(Quantity(symbol(f"P_{n}_{module}"), ELEMENT) * symbol(holds(n)))
    book.define(
        "P_stage_dense",
        total(dense, ELEMENT),
        "parameters of one rank of stage i outside experts",
        unit=ELEMENT,
        group="stages",
        latex=r"P^{(i)}_{\mathrm{dense}}",
    )
    book.define(
        "P_stage_expert",
        total(expert, ELEMENT),
        "expert parameters of one rank of stage i",
        unit=ELEMENT,
        group="stages",
        latex=r"P^{(i)}_{\mathrm{expert}}",
    )
    book.define(
        "P_stage",
        Quantity(symbol("P_stage_dense"), ELEMENT) + Quantity(symbol("P_stage_expert"), ELEMENT),
        "parameters of one rank of stage i",
        unit=ELEMENT,
        group="stages",
        latex=r"P^{(i)}",
    )
