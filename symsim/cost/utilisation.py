"""MFU and HFU: the FLOPs of a step over what the peak rate allows in its time.

    MFU = 3 F - F_frozen or (F + G), HFU = F + G + R + F_further, of all micro-batches and replicas, over t_step * world * Phi

A trained model needs twice the FLOPs of its forward pass for its gradients; F_frozen is what it does not need of them where a product's
weight is frozen, or nothing before it is trained.

F, G and R count attention as assumption `causal` says, so that they compare with counters; for a utilisation, layers with a
window or chunks count the keys that their queries see (assumption `mfu_windows`), since no kernel computes the others.
"""

from __future__ import annotations

from symsim.algebra.expr import ONE, ZERO, Expr, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, layers_of_model, of_block, of_stage, of_step
from symsim.algebra.quantity import FLOP, NONE, Quantity
from symsim.algebra.reductions import stages_sum
from symsim.cost.count import flops, label, multiplicity
from symsim.cost.forwards import forwards
from symsim.cost.held import some_frozen
from symsim.cost.repeated import repeated_share
from symsim.ir.operations import PRODUCTS
from symsim.lowering.lowered import Lowered
from symsim.placement.sizes import keys_per_query, own_keys, own_symbols

KEYS = {"n_w": "window", "n_c": "chunk", "n_v": "band", "n_j": "compressed", "n_p": "picked"}


def utilisation(book: Derivation, lowered: Lowered) -> None:
    """Definitions `mfu` and `hfu`, and where layers have windows or chunks F_outside, G_outside and R_outside: FLOPs of one
    micro-batch, whole model, that F, G and R count outside of them."""
    assume = lowered.profile.assumptions
    outside = _outside(book, lowered)
    forward, backward, again = (Key(n).expr - (Key(n, part="outside").expr if n in outside else 0) for n in ("F", "G", "R"))
    share = repeated_share(lowered.profile.strategy)
    if share != ONE:
        once = of_stage("Z").expr
        again = again * stages_sum(once * share) / stages_sum(once)
    rests_on = ("causal", *(("mfu_windows",) if any(Key(name, "sizes", part=kind) in book for kind, name in _limited(lowered)) else ()))
    replicas = symbol("m") * symbol("dp")
    rate = of_step("t", "step").expr * symbol("world") * symbol("Phi")
    model = 3 * forward - _without(book, lowered) if assume["mfu_flops"] == "model" else forward + backward
    for name, counted, meaning, named in (
        ("mfu", model, "model FLOPs utilisation", ("mfu_flops", *rests_on)),
        ("hfu", forward * (1 + forwards(lowered.profile.strategy)) + backward + again, "hardware FLOPs utilisation", rests_on),
    ):
        latex = rf"\mathrm{{{name.upper()}}}"
        book.define(of_step(name), Quantity(counted * replicas / rate), meaning, unit=NONE, latex=latex, assumptions=named)


def _without(book: Derivation, lowered: Lowered) -> Expr:
    """Defines F_frozen where parameters are frozen: for every product half of its backward for each gradient that is not computed."""
    if not some_frozen(lowered):
        return ZERO
    found, times = ZERO, multiplicity(lowered)
    for block, remembered in lowered.blocks.items():
        computed: dict[int, set[str]] = {}
        for kernel in remembered.differentiated.backward:
            computed.setdefault(kernel.forward, set()).add(kernel.label)
        for i, op in enumerate(remembered.placed.block.ops):
            key = of_block("F", block, operation=op.name)
            if key in book:
                gradients = len(computed.get(i, set()) & {"dgrad", "wgrad"}) if op.kind in PRODUCTS else 2 * (i in computed)
                found = found + (2 - gradients) * key.expr * times[block]
    key = Key("F", part="frozen")
    meaning = "FLOPs of gradients that a model whose parameters are not all trained does not need, one micro-batch"
    return book.define(key, Quantity(found, FLOP), meaning, unit=FLOP, latex=r"F_{\mathrm{frozen}}").expr


def _outside(book: Derivation, lowered: Lowered) -> set[str]:
    """Defines what is counted outside windows and chunks; the letters of the totals that have any. None where they
    are left in (assumption mfu_windows)."""
    strategy = lowered.profile.strategy
    beyond: dict[tuple[str, str], Expr] = {}
    for kind, name in _limited(lowered):
        reach, own = KEYS[name], own_symbols(lowered.profile.model, kind) if kind else {}
        if Key(name, "sizes", part=kind) not in book or book[Key(name, "sizes", part=kind)].expr == keys_per_query("exact", reach, strategy, **own):
            continue
        if lowered.profile.assumptions["mfu_windows"] == "counted":
            return set()
        meaning = f"keys that a query sees inside its {reach}, on average"
        inside = Quantity(keys_per_query("exact", reach, strategy, **own))
        keys = Key(name, "sizes", part="_".join(filter(None, (kind, "in"))))
        latex = rf"{name}^{{{label(kind) + ',' if kind else ''}\mathrm{{in}}}}"
        book.define(keys, inside, meaning, unit=NONE, latex=latex, source="counting")
        beyond[kind, name] = Key(name, "sizes", part=kind).expr - keys.expr
    found = {letter: ZERO for letter in ("F", "G", "R")}
    times = multiplicity(lowered)
    for block, remembered in lowered.blocks.items():
        placed = remembered.placed
        again = layers_of_model(block, again=True).expr if block in lowered.checkpointed else ZERO
        recomputed = {i: times[block] - again for i in remembered.recomputed}
        for i in lowered.checkpointed[block].recomputed if block in lowered.checkpointed else ():
            recomputed[i] = recomputed.get(i, ZERO) + again
        for i, op in enumerate(placed.block.ops):
            forward = _counted_beyond(lowered, block, i, op.products, beyond)
            found["F"] = found["F"] + forward * times[block]
            found["R"] = found["R"] + forward * recomputed.get(i, ZERO)
        for kernel in remembered.differentiated.backward:
            found["G"] = found["G"] + _counted_beyond(lowered, block, kernel.forward, kernel.products, beyond) * times[block]
    made = {letter for letter, expression in found.items() if expression}
    for letter, word in (("F", "forward"), ("G", "backward"), ("R", "recomputed")):
        if letter in made:
            book.define(
                Key(letter, part="outside"),
                Quantity(found[letter], FLOP),
                f"{word} FLOPs counted outside windows and chunks, one micro-batch",
                unit=FLOP,
                latex=rf"{letter}_{{\mathrm{{outside}}}}",
                assumptions=("mfu_windows",),
            )
    return made


def _limited(lowered: Lowered) -> list[tuple[str, str]]:
    """Dimensions of keys that a window, chunk or compression limits, with the kind of layer whose own they are, or ""."""
    model = lowered.profile.model
    return [("", name) for name in KEYS] + [(kind, dim) for kind in model.kind_names() for dim in own_keys(model, kind) if dim in KEYS]


def _counted_beyond(lowered: Lowered, block: str, index: int, products: tuple[tuple[str, ...], ...], beyond: dict[tuple[str, str], Expr]) -> Expr:
    """FLOPs of an operation's products over the keys outside its window."""
    placed = lowered.blocks[block].placed
    found = ZERO
    for dims in products:
        for (kind, keys), outside in beyond.items():
            if keys in dims and kind in ("", lowered.profile.model.kind_of(block)):
                found = found + flops(placed, index, [tuple(d for d in dims if d != keys)], local=False).expr * outside
    return found
