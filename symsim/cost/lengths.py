"""What a step waits for because rows differ: documents of several lengths make some rows' attention longer than others'.

A row of s tokens is so many documents that Var(sum of u^2) = s Var(u^2 - r u) / E[u], with r = E[u^2]/E[u] (the variance of a
renewal reward process: Ross, Stochastic Processes, sec. 3.6), so the attention of a micro-batch of b rows deviates by

    kappa = sqrt(u k_u / (b s))         of its mean; k_u = Var(u^2 - r u) / (E[u] r)^2, for lognormal lengths q^4 - 2 q^2 + q, q = 1 + q_u

Of n normal numbers the largest lies xi(n) deviations above their mean. The pipeline waits for the longest of all micro-batches as often as
it waits at all (equal machines that all jobs pass: Pinedo, Scheduling, sec. 6.1), and data-parallel ranks wait for one another: every
micro-batch where they gather parameters or exchange tokens, else at the end of the step, when m of them have been added up.
"""

from __future__ import annotations

from symsim.algebra.expr import ONE, ZERO, Expr, maximum, minimum, sqrt, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, layers, of_block, of_stage, of_step
from symsim.algebra.quantity import SECOND, Quantity, total
from symsim.algebra.reductions import stages_at
from symsim.cost.count import label
from symsim.cost.hbm import written_out
from symsim.cost.largest import SOURCE, expected_largest
from symsim.inputs.lengths import documents
from symsim.ir.block import TOKENS, Op
from symsim.ir.operations import Attention
from symsim.lowering.lowered import Lowered
from symsim.pipeline.stages import runs


def rows_differ(lowered: Lowered) -> bool:
    lengths = documents(lowered.profile.strategy)
    return lengths is not None and lengths.varied and lowered.profile.assumptions["row_balance"] == "drawn"


def _of_lengths(lowered: Lowered, ops: "tuple[Op, ...]") -> list[int]:
    """The operations whose work follows from documents' lengths, besides what all tokens of a row have: attention over whole documents, or of
    rows that are padded what works on the other tokens alone."""
    if lowered.profile.strategy.mlp_padding_free:
        return [i for i, op in enumerate(ops) if op.products and not {TOKENS, "R"}.isdisjoint(op.products[0])]
    return [i for i, op in enumerate(ops) if isinstance(op.attrs, Attention) and op.attrs.keys in ("n_z", "n_b") and not written_out(op)]


def define_attention(book: Derivation, lowered: Lowered) -> None:
    """Of stage i, where rows differ: t_attention_stage, a micro-batch's attention over whole documents, forward, backward and again; of rows that
    are padded t_networks_stage, the same of the products of feed-forward networks and experts."""
    if not rows_differ(lowered):
        return
    parts, (part, what, latex) = [], _differing(lowered)
    for name, remembered in lowered.blocks.items():
        ops = remembered.placed.block.ops
        whole = _of_lengths(lowered, ops)
        again = layers(name, again=True).expr if name in lowered.checkpointed else ZERO
        for i in whole:
            forward = Quantity(of_block("t", name, operation=ops[i].name, phase="forward").expr, SECOND)
            parts.append(forward * symbol(runs(name)))
            parts += [forward * (symbol(runs(name)) - again)] if i in remembered.recomputed else []
            parts += [forward * again] if name in lowered.checkpointed and i in lowered.checkpointed[name].recomputed else []
            parts += [
                Quantity(of_block("t", name, operation=ops[i].name, phase=k.label).expr, SECOND) * symbol(runs(name))
                for k in remembered.differentiated.backward
                if k.forward == i
            ]
    book.define(of_stage("t", part), total(parts, SECOND), f"stage i: {what}, forward, backward and again", unit=SECOND, latex=rf"{latex}^{{(i)}}")


def _differing(lowered: Lowered) -> tuple[str, str, str]:
    """The part of a micro-batch whose work follows from its documents' lengths, in a word, in words and in LaTeX."""
    if lowered.profile.strategy.mlp_padding_free:
        return "networks", "products of feed-forward networks of a micro-batch", "t_F"
    return "attention", "attention of a micro-batch over whole documents", "t_A"


def _together(lowered: Lowered) -> Expr:
    """Replicas that wait for one another every micro-batch: all that gather parameters or reduce gradients, or those that share experts."""
    mesh, strategy = lowered.mesh, lowered.profile.strategy
    if strategy.zero >= 2:
        return mesh.degree("dp")
    if lowered.profile.model.moe is None or not mesh.active("ep"):
        return ONE
    inside = mesh.degree("tp") * mesh.group(mesh.context_axes)
    return minimum(mesh.degree("dp"), maximum(1, mesh.degree("ep") * mesh.degree("etp") / inside))


_SAID = {
    "together": "replicas that wait every micro-batch",
    "apart": "groups of replicas",
    "microbatches": "micro-batches of all replicas",
}


def longest_rows(book: Derivation, lowered: Lowered) -> Expr:
    """Defines t_attention, kappa_rows, xi_* and e_lengths, the seconds of a step that others wait for the longest rows: its symbol, or zero."""
    if not rows_differ(lowered):
        return ZERO
    u, m = symbol("u"), symbol("m")
    (part, what, latex), padded = _differing(lowered), lowered.profile.strategy.mlp_padding_free
    slowest = stages_at(of_stage("t", part).expr, of_stage("t").expr)
    attention = book.define(of_step("t", part), Quantity(slowest, SECOND), f"{what}, on the slowest stage", unit=SECOND, latex=latex)
    deviation = book.define(
        Key("kappa_rows", "step"),
        Quantity(sqrt(symbol("q_u") / symbol("b")) if padded else sqrt(u * symbol("k_u") / (symbol("b") * symbol("s")))),
        f"standard deviation of a micro-batch's {'tokens' if padded else 'attention work'}, over its mean",
        latex=r"\sigma_A",
        source="" if padded else "renewal reward process: Ross, Stochastic Processes, sec. 3.6",
    )
    waits = symbol("t_bubble") / symbol("t_slow") if lowered.profile.strategy.pp > 1 else ZERO
    times = _deviations(book, lowered, waits)
    mean = u * (1 + symbol("q_u"))
    if lowered.profile.strategy.padding_free:
        # all else rises with a row's tokens, attention with their square
        rest, longest = symbol("t_slow") - attention.expr, symbol("s_max")
        deviations = rest * sqrt(symbol("q_u") / symbol("b")) + attention.expr * deviation.expr
        longer = minimum(deviations * times, (m + waits) * (rest * (longest / u - 1) + attention.expr * (longest**2 / (u * mean) - 1)))
    elif padded:
        longer = attention.expr * minimum(deviation.expr * times, (m + waits) * (symbol("s") / u - 1))
    else:
        longer = attention.expr * minimum(deviation.expr * times, (m + waits) * (symbol("s") / mean - 1))
    return book.define(
        of_step("exposed", axis="lengths"),
        Quantity(longer, SECOND),
        "waiting for the longest rows",
        unit=SECOND,
        latex=rf"\epsilon^{{{label('lengths')}}}",
        assumptions=("row_balance",),
    ).expr


def _deviations(book: Derivation, lowered: Lowered, waits: Expr) -> Expr:
    """By how many deviations of a micro-batch's work a step is longer. waits: micro-batches' times that the slowest stage waits."""
    m, replicas, together = symbol("m"), lowered.mesh.degree("dp"), _together(lowered)
    found = ZERO
    for part, n, times in (("together", together, m), ("apart", replicas / together, sqrt(m)), ("microbatches", m * replicas, waits)):
        if n == ONE or not times:
            continue
        largest = book.define(
            Key("xi", "step", part=part),
            Quantity(expected_largest(n)),
            f"expected largest of as many normal numbers as there are {_SAID[part]}",
            latex=rf"\xi_{{{label(part)}}}",
            source=SOURCE,
        )
        found = found + times * largest.expr
    return found
