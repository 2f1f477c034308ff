"""The closed forms of kernels: seconds of a product, of attention, and of what moves bytes, over the dimensions of one kernel in words."""

from __future__ import annotations

from symsim.algebra.expr import ZERO, Call, Expr, expr, symbol
from symsim.inputs import curves
from symsim.report.document import Equation, Equations, Paragraph, Section, Spans, spans
from symsim.report.ink import Ink
from symsim.report.step import Step

_DIMENSIONS = {
    "rows": "rows of the first operand and of the result",
    "columns": "columns of the second operand and of the result",
    "depth": "columns of the first operand and rows of the second, summed over",
    "groups": "equal products of one grouped kernel",
    "w_in": "bytes an element of the operands",
    "w_out": "bytes an element of the result",
    "sequences": "sequences on one rank",
    "heads": "query heads on one rank",
    "queries": "queries of a sequence on one rank",
    "keys": "keys that a query could see without a mask",
    "size": "size of a head",
    "bytes": "bytes read and written",
}


def section(step: Step, ink: Ink) -> Section:
    """The formulas of `curves`, over the dimensions of one kernel in words: of those kinds of which the step has kernels."""
    rows, columns, depth, groups, read, written, peak = (symbol(x) for x in ("rows", "columns", "depth", "groups", "w_in", "w_out", "Phi"))
    heads = [symbol(x) for x in ("sequences", "heads", "queries", "keys", "size", "size")]
    moved = symbol("bytes")
    forms = {
        "product": curves.gemm(rows, columns, depth, kind="forward", peak=peak, width_in=read, width_out=written),
        "grouped": curves.gemm(rows, columns, depth, groups=groups, kind="forward", peak=peak, width_in=read, width_out=written, grouped=True),
        "attention": curves.attention(*heads, causal=True, backward=False, peak=peak, moved=moved),
        "attention\u2032": curves.attention(*heads, causal=True, backward=True, peak=peak, moved=moved),
        "moved": curves.memory_bound(symbol("bytes"), kind="elementwise"),
    }
    # a kernel's seconds are read by a derivation with all the numbers of the machine that its form has
    read_numbers = set[str]().union(*(d.expr.symbols() for d in step.result.derivation.definitions.values()))
    forms = {title: form for title, form in forms.items() if form.symbols() <= {"Phi", *_DIMENSIONS, *read_numbers}}
    words = {name: meaning for name, meaning in _DIMENSIONS.items() if any(name in form.symbols() for form in forms.values())}
    ink.own |= words
    ink.used.update(dict.fromkeys(words))
    opening, *others = forms.items()
    one = Paragraph(
        spans("A kernel computes while its operands cross HBM, so that a product takes the longer of the two, a share of the shorter, and a start:")
    )
    said = Paragraph(
        spans(
            "A matrix product of rows \u00d7 depth with depth \u00d7 columns is cut into tiles of "
            f"{curves.TILE} \u00d7 {curves.TILE}, the last of half the rows where that is enough, as many at a time as there are multiprocessors, "
            "or of a quarter of that where they are fewer; "
            "a tile has a start and an end; it computes while its operands cross HBM, and a "
            "share of the shorter of the two is not hidden; a weight gradient reads its result, too. ",
            *(_of_attention(ink) if "attention" in forms else ()),
            "Everything else moves bytes. An operation's own dimensions stand for the words in the tables of the blocks.",
        )
    )
    first, *apart = _form(ink, *opening)
    rest = Equations((*apart, *(e for title, formula in others for e in _form(ink, title, formula))))
    return Section("Kernels", (one, Equations((first,)), said, rest))


def _of_attention(ink: Ink) -> Spans:
    return spans(
        "Flash attention works through the pairs of query and key that the mask leaves (backward: the second form) and through ",
        ink.symbol("kappa_fa"),
        f" keys beyond its edge, or walks along one row; of a window queries see that many keys at most; heads smaller than {curves.HEAD} take a "
        "share of their time for the softmax, which does not shrink with them; heads whose keys and values differ in size take a share ",
        ink.symbol("zeta_fa"),
        " of that difference longer; where ",
        ink.symbol("sigma_fab"),
        " is 1, gradients of queries are summed in passes of their own. ",
    )


def _form(ink: Ink, title: str, formula: Expr) -> list[Equation]:
    """A kernel's seconds, with what its maximum compares as equations of their own."""
    mark = "b" if title.endswith("\u2032") else ""
    title = title.rstrip("\u2032")
    apart: dict[Expr, str] = {}
    compared = _compared(formula)
    while compared:
        argument = compared.pop(0)
        found = argument.symbols()
        part = "busy" if {"B_hbm", "Phi"} <= found else "memory" if "B_hbm" in found else "compute" if "Phi" in found else "walk"
        apart[argument] = ink.local(f"{title} {mark} {part}", _superscript(mark) + rf"_{{\mathrm{{{title}}},\mathrm{{{part}}}}}")
        compared += [a for a in _compared(argument) if a not in apart and a not in compared] if part == "busy" else []
        for tiles in (a for a in _compared(argument) if part == "compute" and "columns" in a.symbols()):
            # which its work and their starts are both of
            apart[tiles] = ink.local(f"{title} tiles", rf"n_{{\mathrm{{{title}}},\mathrm{{tiles}}}}")
    name = ink.local(f"{title} {mark}", _superscript(mark) + rf"_{{\mathrm{{{title}}}}}")
    return [ink.equation(name, _replaced(formula, apart)), *(ink.equation(n, _replaced(argument, apart)) for argument, n in apart.items())]


def _compared(formula: Expr) -> list[Expr]:
    """The arguments of a formula's maxima and minima, each once."""
    calls = [a for monomial in formula.terms for a, _ in monomial if isinstance(a, Call) and a.function in ("max", "min")]
    return list(dict.fromkeys(a for call in calls for a in call.arguments))


def _superscript(mark: str) -> str:
    return f"t^{{{mark}}}" if mark else "t"


def _replaced(formula: Expr, apart: dict[Expr, str]) -> Expr:
    """The formula with symbols for the arguments of its maxima and minima."""
    total = ZERO
    for monomial, coefficient in formula.terms.items():
        term = expr(coefficient)
        for atom, power in monomial:
            if isinstance(atom, Call) and any(a in apart for a in atom.arguments):
                atom = Call(atom.function, tuple(symbol(apart[a]) if a in apart else a for a in atom.arguments))
            term = term * Expr({((atom, 1),): 1}) ** power
        total = total + term
    return total
