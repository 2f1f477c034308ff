"""count: blocks -> named definitions, exact.

For every block: parameters by module, FLOPs of each operation (of the whole model, and as executed by one rank),
HBM bytes, saved bytes by tensor. Then the totals: of the model, and of pipeline stage `i`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from symsim.algebra.expr import ONE, ZERO, Expr, expr, minimum, product, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, layers, layers_of_model, of_block, of_stage
from symsim.algebra.kinds import DEPTH, as_named, in_words
from symsim.algebra.quantity import BYTE, ELEMENT, FLOP, Quantity, Unit, total
from symsim.cost.forwards import define_forward_flops
from symsim.cost.hbm import backward_bytes, forward_bytes
from symsim.cost.held import some_frozen, stage_parameters, trained_of
from symsim.cost.lent import lent
from symsim.frameworks.kernels import Profile, attended
from symsim.inputs.conventions import Rule
from symsim.inputs.traced import once
from symsim.ir.block import MODULES, Block, Tensor
from symsim.ir.operations import OPERATIONS, PRODUCTS, UNCOUNTED, Attention, Operation, Projection
from symsim.ir.roles import role_of
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import Differentiated, elements
from symsim.lowering.lowered import Lowered
from symsim.lowering.remember import Remembered
from symsim.pipeline.stages import runs, stage_layer_formula
from symsim.placement.mesh import local_size
from symsim.placement.sizes import capacity, entries_per_query, keys_per_query, own_keys, own_symbols, reached_by


@dataclass(frozen=True)
class Counted:
    """The definitions, and which name holds what: `ops[block]` lists (operation index, its forward definition)."""

    derivation: Derivation
    ops: dict[str, list[tuple[int, str]]]


@cache
def label(text: str) -> str:
    """Text as an upright subscript; underscores stay as many as the user's name has, since names differ in them."""
    return r"\mathrm{" + re.sub(r"_*\W[_\W]*|_", r"\\_", as_named(text)).strip("\\_") + "}"


def count(lowered: Lowered, book: Derivation | None = None) -> Counted:
    """Definitions in the order in which a reader meets them: sizes, blocks, model totals, stage totals."""
    made = Counted(book if book is not None else Derivation(), {})
    derived_sizes(made.derivation, lowered)
    stage_layers(made.derivation, lowered)
    for name, remembered in lowered.blocks.items():
        made.ops[name] = _block(made.derivation, name, remembered.differentiated, lowered.profile)
        define_kept(made.derivation, name, remembered, lowered.profile)
    for name, remembered in lowered.checkpointed.items():
        define_kept(made.derivation, name, remembered, lowered.profile, whole=True)
    _model_totals(made.derivation, lowered)
    _stage_totals(made.derivation, lowered)
    stage_parameters(made.derivation, lowered)
    return made


def count_parameters(lowered: Lowered, book: Derivation) -> None:
    """The same as far as the parameters of a stage follow from it, which do not wait for what backward keeps."""
    derived_sizes(book, lowered)
    stage_layers(book, lowered)
    for name in lowered.blocks:
        _parameters(book, name, lowered.blocks[name].differentiated, lowered.profile)
    stage_parameters(book, lowered)


@once
def derived_sizes(book: Derivation, lowered: Lowered) -> None:
    """What blocks are told of sizes that follow from others."""
    model, strategy, assume = lowered.profile.model, lowered.profile.strategy, lowered.profile.assumptions
    own = {kind: own_keys(model, kind) for kind in model.kind_names()}
    block = symbol("c_x") if model.attention.dsa_indexer_block else ONE
    reaches: set[str] = {model.layer_kinds[k].reach for k in model.kind_names() if not own[k]}
    reaches |= {"chosen"} if model.attention.dsa_indexer_topk and (model.attention.kind == "mla" or block != ONE) else set()
    for reach, name, meaning in (
        ("all", "n_z", "mean number of keys a query attends to"),
        ("both", "n_b", "mean number of keys a query attends to before and behind it"),
        ("window", "n_w", "mean number of keys a query attends to inside a window"),
        ("chunk", "n_c", "mean number of keys a query attends to inside a chunk of attention"),
        ("band", "n_v", "mean number of keys a query attends to inside a window to either side"),
        ("chosen", "n_k", "mean number of keys a query attends to of those that an indexer chose"),
    ):
        if reach in reaches:
            each = keys_per_query(assume["causal"], reached_by(name, assume), strategy, block=block)
            keys = Quantity(each * attended(strategy, assume))
            book.define(Key(name, "sizes"), keys, meaning, latex=name, assumptions=("causal",))
    for kind, dims in own.items():
        for dim in dims:
            keys, at = _own_keys(lowered, kind, dim), Key(dim, "sizes", part=kind)
            meaning = "mean number of complete entries before a query" if dim == "n_e" else "mean number of keys a query attends to"
            book.define(at, keys, f"{meaning}, {in_words(kind)} layers", latex=f"{dim}^{{{label(kind)}}}", assumptions=("causal",))
    if strategy.moe_pad_expert_input_to_capacity and model.moe:
        book.define(
            Key("C", "sizes"),
            Quantity(capacity(strategy, lowered.mesh)),
            "rows an expert takes from one rank",
            latex="C",
            source="megatron.core transformer/moe/moe_utils.py get_capacity",
        )


@once
def stage_layers(book: Derivation, lowered: Lowered) -> None:
    """Layers of every kind on stage i, where a formula has them."""
    for kind, held in (stage_layer_formula(lowered.profile.model, lowered.profile.strategy) or {}).items():
        book.define(
            Key("L", "stage", kind, part="of"),
            Quantity(held),
            f"{in_words(kind)} layers on stage i",
            latex=rf"L^{{(i)}}_{{{label(kind)}}}",
            source="the even split, rounded down at every boundary; Megatron-Core asks for an explicit layout where L is uneven",
        )


def _own_keys(lowered: Lowered, kind: str, dim: str) -> Quantity:
    model, strategy, assume = lowered.profile.model, lowered.profile.strategy, lowered.profile.assumptions
    symbols = own_symbols(model, kind)
    if dim == "n_e":
        return Quantity(entries_per_query(assume["causal"], symbols["m_x"]))
    return Quantity(keys_per_query(assume["causal"], reached_by(dim, assume), strategy, **symbols) * attended(strategy, assume))


def flops(placed: Placed, index: int, products: Iterable[tuple[str, ...]], *, local: bool) -> Quantity:
    """2 FLOP a multiply-add, of one rank (local) or of the whole model for one micro-batch."""
    block, layout = placed.block, placed.iteration[index]
    result = ZERO
    for dims in products:
        result = result + 2 * product(local_size(placed.mesh, block, d, layout.get(d, ())) if local else block.dims[d].whole_model for d in dims)
    return Quantity(result, FLOP)


@once
def _block(book: Derivation, name: str, differentiated: Differentiated, profile: Profile) -> list[tuple[int, str]]:
    """Defines what a block runs; its operations with products, and the names of their FLOPs."""
    placed, products = differentiated.placed, list[tuple[int, str]]()
    block = placed.block
    _parameters(book, name, differentiated, profile)
    forward: list[Quantity] = []
    executed: list[Quantity] = []
    moved: list[Quantity] = []
    for index, op in enumerate(block.ops):
        if op.kind in UNCOUNTED:
            continue
        if op.products:
            products.append((index, of_block("F", name, operation=op.name).text))
        here = _by_convention(profile.conventions.counted, placed, index, "forward", profile, FLOP)
        there = _of_whole_model(placed, index, "forward", profile)
        for letter, found, where, own in (("F", forward, "", there), ("X", executed, ", on one rank", here)):
            if op.products or own is not None:
                found.append(
                    book.define(
                        of_block(letter, name, operation=op.name),
                        flops(placed, index, op.products, local=letter == "X") if own is None else own,
                        f"{op.name}, forward{where}",
                        unit=FLOP,
                        latex=rf"{letter}_{{{label(op.name)}}}",
                        assumptions=OPERATIONS[op.kind].counted_by,
                    )
                )
        moved.append(
            book.define(
                of_block("Q", name, operation=op.name),
                _by_convention(profile.conventions.moved, placed, index, "forward", profile, BYTE) or forward_bytes(placed, index, profile),
                f"{op.name}, bytes read and written on one rank",
                unit=BYTE,
                latex=rf"Q_{{{label(op.name)}}}",
            )
        )
    title, words = label(name), in_words(name)
    book.define(of_block("F", name), total(forward, FLOP), f"{words}: forward", unit=FLOP, latex=f"F_{{{title}}}")
    book.define(of_block("X", name), total(executed, FLOP), f"{words}: forward on one rank", unit=FLOP, latex=f"X_{{{title}}}")
    book.define(of_block("Q", name), total(moved, BYTE), f"{words}: HBM bytes of forward on one rank", unit=BYTE, latex=f"Q_{{{title}}}")
    _backward(book, name, differentiated, profile, title)
    return products


def assumed(placed: Placed, of: Callable[[Operation], tuple[str, ...]]) -> tuple[str, ...]:
    """Assumptions behind a block's operations, by their kinds, in the order of the table."""
    present = {op.kind for op in placed.block.ops}
    return tuple(dict.fromkeys(a for kind, row in OPERATIONS.items() if kind in present for a in of(row)))


def _backward(book: Derivation, name: str, differentiated: Differentiated, profile: Profile, title: str) -> None:
    placed = differentiated.placed
    whole, local, moved = [], [], []
    for kernel in differentiated.backward:
        op = placed.block.ops[kernel.forward]
        moved.append(
            book.define(
                of_block("U", name, operation=op.name, phase=kernel.label),
                _by_convention(profile.conventions.moved, placed, kernel.forward, kernel.label, profile, BYTE)
                or backward_bytes(placed, kernel, profile),
                f"{op.name}, {kernel.label}, bytes read and written on one rank",
                unit=BYTE,
                latex=rf"U^{{\mathrm{{{kernel.label}}}}}_{{{label(op.name)}}}",
            )
        )
        own = _by_convention(profile.conventions.counted, placed, kernel.forward, kernel.label, profile, FLOP)
        local += [] if own is None else [own]
        if not kernel.products:
            model = _of_whole_model(placed, kernel.forward, kernel.label, profile)
            whole += [] if model is None else [model]
            continue
        times = profile.conventions.attention_backward if isinstance(op.attrs, Attention) else None
        if op.kind in PRODUCTS or times is not None:
            whole.append(Quantity(of_block("F", name, operation=op.name).expr * (times or 1), FLOP))
            here = Quantity(of_block("X", name, operation=op.name).expr * (times or 1), FLOP)
        else:
            whole.append(flops(placed, kernel.forward, kernel.products, local=False))
            here = flops(placed, kernel.forward, kernel.products, local=True)
        local += [here] if own is None else []
    rests_on, words = assumed(placed, lambda row: row.gradients_by + row.counted_by), in_words(name)
    book.define(
        of_block("G", name),
        total(whole, FLOP),
        f"{words}: backward (input and weight gradients)",
        unit=FLOP,
        latex=f"G_{{{title}}}",
        assumptions=rests_on,
    )
    book.define(of_block("Y", name), total(local, FLOP), f"{words}: backward on one rank", unit=FLOP, latex=f"Y_{{{title}}}")
    book.define(of_block("U", name), total(moved, BYTE), f"{words}: HBM bytes of backward on one rank", unit=BYTE, latex=f"U_{{{title}}}")


def _by_convention(rules: Mapping[str, Rule], placed: Placed, index: int, phase: str, profile: Profile, unit: Unit) -> Quantity | None:
    """What another system's rule for this kind of operation counts; None where there is none."""
    rule = rules.get(placed.block.ops[index].kind)
    return None if rule is None else Quantity(rule(placed, index, phase, profile), unit)


def _of_whole_model(placed: Placed, index: int, phase: str, profile: Profile) -> Quantity | None:
    """FLOPs of an operation in the whole model where a convention counts them."""
    op, rules = placed.block.ops[index], profile.conventions.whole
    labels = op.attrs.labels if isinstance(op.attrs, Projection) else ()
    rule = next((rules[name] for name in (*labels, op.kind) if name in rules), None)
    counted = None if rule is None else rule(placed, index, phase, profile)
    return None if counted is None else Quantity(counted, FLOP)


@once
def define_kept(book: Derivation, name: str, remembered: Remembered, profile: Profile, whole: bool = False) -> None:
    """Recomputed FLOPs and saved bytes, of the block as the strategy recomputes it; whole: in full."""
    placed = remembered.placed
    again = [i for i in sorted(remembered.recomputed) if placed.block.ops[i].products]
    title = f"{label(name)},\\mathrm{{ckpt}}" if whole else label(name)
    book.define(
        of_block("R", name, whole),
        total((Quantity(of_block("F", name, operation=placed.block.ops[i].name).expr, FLOP) for i in again), FLOP),
        f"{in_words(name)}: computed again in backward",
        unit=FLOP,
        latex=f"R_{{{title}}}",
        assumptions=("recompute_early_stop",) if again else (),
    )
    rule = profile.conventions.again.get("flops")
    executed = total((Quantity(of_block("X", name, operation=placed.block.ops[i].name).expr, FLOP) for i in again), FLOP)
    book.define(
        of_block("Z", name, whole),
        executed if rule is None else Quantity(rule(name, whole), FLOP),
        f"{in_words(name)}: computed again in backward, on one rank",
        unit=FLOP,
        latex=f"Z_{{{title}}}",
    )
    saved = []
    for item in remembered.saved:
        size = Quantity(item.elements, ELEMENT) * Quantity(expr(item.bytes_each), BYTE / ELEMENT)
        saved.append(
            book.define(
                of_block("A", name, whole, tensor=item.name),
                size,
                f"{item.name} kept for {', '.join(map(str, item.by))}",
                unit=BYTE,
                latex=rf"A_{{{label(item.name)}}}",
            )
        )
    book.define(
        of_block("A", name, whole),
        total(saved, BYTE),
        f"{in_words(name)}: bytes kept for backward on one rank",
        unit=BYTE,
        latex=f"A_{{{title}}}",
        assumptions=assumed(placed, lambda row: row.assumed),
    )
    shared = total((Quantity(i.bytes, BYTE) for i in remembered.shared), BYTE)
    if shared.expr:
        book.define(
            of_block("A", name, whole, part="shared"),
            shared,
            f"{in_words(name)}: kept once for all layers (tables, masks)",
            unit=BYTE,
            latex=f"A^{{\\mathrm{{shared}}}}_{{{title}}}",
        )


def owned_parameters(block: Block) -> list[Tensor]:
    """Parameters a block owns: MTP reads the embedding and the head of the model; of a tied head the table is the embedding's, a bias its own."""
    return [t for t in block.parameters() if not t.borrowed]


def counted_parameters(placed: Placed) -> list[Tensor]:
    return owned_parameters(placed.block)


def parameter_elements(placed: Placed, tensor: Tensor, *, local: bool) -> Expr:
    if local:
        return elements(placed, tensor.name)
    return product(placed.block.dims[d].size for d in tensor.dims)


@once
def _parameters(book: Derivation, name: str, differentiated: Differentiated, profile: Profile) -> None:
    """Parameters by module, and those of them that are trained where not all are."""
    placed, uncounted = differentiated.placed, profile.conventions.uncounted
    for module in MODULES:
        owned = [t for t in counted_parameters(placed) if t.module == module and not any(rule(t) for rule in uncounted.values())]
        for some, suffix, which in ((owned, "", ""), ([t for t in owned if t.gradient], "_trained", "trained ")):
            if not owned or (suffix and some == owned):
                continue
            for prefix, local, where in (("N", False, ""), ("P", True, ", held by one rank")):
                over = r"^{\mathrm{trained}}" if suffix else ""
                book.define(
                    of_block(f"{prefix}{suffix}", name, module=module),
                    total((Quantity(parameter_elements(placed, t, local=local), ELEMENT) for t in some), ELEMENT),
                    f"{in_words(name)}: {which}{module} parameters{where}",
                    unit=ELEMENT,
                    latex=f"{prefix}{over}_{{{label(name)},{label(module)}}}",
                )


def multiplicity(lowered: Lowered) -> dict[str, Expr]:
    """How often each block runs in the model: layers of a kind are a symbol, so totals do not depend on L."""
    model = lowered.profile.model
    return {n: layers_of_model(n).expr if n in model.layer_kinds else role_of(n).times for n in lowered.blocks}


@once
def _model_totals(book: Derivation, lowered: Lowered) -> None:
    times = multiplicity(lowered)
    copies = {n: ONE if n == DEPTH and lowered.profile.model.mtp_use_repeated_layer else t for n, t in times.items()}
    modules = []
    for module in MODULES:
        own = {n: of_block("N", n, module=module) for n in lowered.blocks}
        parts = [Quantity(key.expr, ELEMENT) * copies[n] for n, key in own.items() if key in book]
        if parts:
            named = Key("N", module=module)
            modules.append(book.define(named, total(parts, ELEMENT), f"{module} parameters", unit=ELEMENT, latex=f"N_{{{label(module)}}}"))
    book.define(Key("N"), total(modules, ELEMENT), "parameters", unit=ELEMENT, latex="N")
    if some_frozen(lowered):
        held = [(n, m) for m in MODULES for n in lowered.blocks if of_block("N", n, module=m) in book]
        trained = total((Quantity(trained_of(book, "N", n, m), ELEMENT) * copies[n] for n, m in held), ELEMENT)
        book.define(Key("N", part="trained"), trained, "parameters that are trained", unit=ELEMENT, latex=r"N_{\mathrm{trained}}")
    if Key("N", module="experts") in book:
        idle = Quantity(Key("N", module="experts").expr, ELEMENT) * (1 - symbol("K") / symbol("E"))
        book.define(
            Key("N", part="active"),
            Quantity(Key("N").expr, ELEMENT) - idle,
            "parameters a token uses (embeddings included)",
            unit=ELEMENT,
            latex=r"N_{\mathrm{active}}",
        )
    for prefix, meaning in (("F", "forward"), ("G", "backward")):
        parts = [Quantity(of_block(prefix, n).expr, FLOP) * times[n] for n in lowered.blocks]
        book.define(Key(prefix), total(parts, FLOP), f"{meaning} FLOPs of the model, one micro-batch", unit=FLOP, latex=prefix)
    again = []
    for n in lowered.blocks:
        whole = layers_of_model(n, again=True).expr if n in lowered.checkpointed else ZERO
        again.append(Quantity(of_block("R", n).expr, FLOP) * (times[n] - whole))
        if n in lowered.checkpointed:
            again.append(Quantity(of_block("R", n, again=True).expr, FLOP) * whole)
    book.define(Key("R"), total(again, FLOP), "FLOPs computed again in backward, one micro-batch", unit=FLOP, latex="R")
    define_forward_flops(book, lowered.profile.strategy)


@once
def _stage_totals(book: Derivation, lowered: Lowered) -> None:
    """Totals of one rank of stage i. Indicators: first_i, loss_i (holds the head), mtp_i (depths held)."""
    here = {n: symbol(runs(n)) for n in lowered.blocks}
    full = lowered.profile.strategy.recompute == "full" and not lowered.profile.conventions.leaves

    def stage(letter: str, unit: Unit, meaning: str) -> None:
        parts = []
        for n in lowered.blocks:
            if letter in ("Z", "A") and n in lowered.checkpointed:
                again = layers(n, again=True).expr
                parts.append(Quantity(of_block(letter, n).expr, unit) * (here[n] - again))
                if not (full and letter == "A"):
                    parts.append(Quantity(of_block(letter, n, again=True).expr, unit) * again)
            else:
                parts.append(Quantity(of_block(letter, n).expr, unit) * here[n])
        if letter == "A":
            parts += _checkpoints(lowered) if full else []
            parts += [*_shared(book, lowered), lent(lowered)]
        book.define(of_stage(letter), total(parts, unit), meaning, unit=unit, latex=rf"{letter}^{{(i)}}")

    stage("X", FLOP, "forward FLOPs of one rank of stage i, one micro-batch")
    stage("Y", FLOP, "backward FLOPs of one rank of stage i, one micro-batch")
    stage("Z", FLOP, "FLOPs computed again by one rank of stage i, one micro-batch")
    stage("Q", BYTE, "HBM bytes of forward of one rank of stage i, one micro-batch")
    stage("U", BYTE, "HBM bytes of backward of one rank of stage i, one micro-batch")
    stage("A", BYTE, "bytes one micro-batch keeps on one rank of stage i")


def _shared(book: Derivation, lowered: Lowered) -> list[Quantity]:
    """What all layers of a stage keep together, where it has any: a mask goes into each that is called again, whatever its mixer."""
    found = [key for n in lowered.blocks for again in (True, False) if (key := of_block("A", n, again, part="shared")) in book]
    strategy = lowered.profile.strategy
    counted = strategy.account_for_embedding_in_pipeline_split or strategy.account_for_loss_in_pipeline_split
    there = ONE
    if counted or strategy.pipeline_model_parallel_layout is not None:
        there = minimum(1, sum((symbol(runs(n)) for n in lowered.blocks if n in lowered.profile.model.layer_kinds or n == DEPTH), ZERO))
    return [Quantity(key.expr * there, BYTE) for key in found[:1]]


def _checkpoints(lowered: Lowered) -> list[Quantity]:
    """What stays of layers that run again in full: the same of each group, or, where kinds keep other bytes (frozen ones none), by kind."""
    each = {kind: Quantity(of_block("A", kind, again=True).expr, BYTE) for kind in lowered.checkpointed}
    if len({sum((s.bytes for s in found.saved), ZERO) for found in lowered.checkpointed.values()}) == 1:
        return [next(iter(each.values())) * symbol("checkpoints_i")]
    together = lowered.profile.strategy.recompute_num_layers if lowered.profile.strategy.recompute_method == "uniform" else 1
    return [size * (layers(kind, again=True).expr / together) for kind, size in each.items()]
