"""Names for parts of a formula too long to be read in one: what a maximum compares, and the sums that several of its terms are.

A part is named by what it is: ring and tree of a collective's seconds, compute and memory of a kernel's, the host's time for kernels;
parameters of one block together, the states that stand at every moment. An equation of the report says what each stands for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from symsim.algebra.expr import Call, Expr, Monomial, Symbol, symbol
from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import Definition
from symsim.algebra.typeset import latex, word
from symsim.inputs.system import Peak

# by the quantity of a definition, or a rate of the system, in an argument of a maximum: the first that is there says what it is
_KINDS = {"delta": "tree", "alpha": "ring", "Phi": "compute", "B_hbm": "memory", "t_launch": "host", "e": "exposed", "W": "working", "M": "held"}
_WORDS = {
    "tree": "of an all-reduce over a tree",
    "ring": "of an all-reduce over a ring",
    "compute": "that multiplying takes at its rate",
    "memory": "that reading and writing takes at its rate",
    "host": "that the host takes to launch kernels",
    "exposed": "with what nothing hides",
    "working": "with what kernels work on",
    "held": "with what stays",
    "part": "the larger of what is compared",
}
# by what compares them: of a part of its own kind the name, and what it is
_OWN = {"t_place": ("wait", "what the pipeline takes beyond one micro-batch on all ranks, if rank i makes the others wait")}
_PEAKS = frozenset({"Phi", *(f"Phi_{kind}" for kind in Peak.model_fields)})
_FOOT = re.compile(r"_(?:\{((?:[^{}]|\{[^{}]*\})*)\}|([A-Za-z0-9]))")  # of a name, its own braces included
_FEWEST = 2
# quantities whose sums have a name of their own: bytes that a rank holds, parameters of a block
_SUMMED = ("M", "P")


class Parts:
    """Parts that were named, by what they are."""

    def __init__(self, book: Mapping[str, Definition], names: Mapping[str, str], local: Callable[[str, str], str]):
        """names: LaTeX by symbol; local: makes a symbol of the report, of a name and its LaTeX."""
        self.book, self.names, self.local = book, names, local
        self.meanings: dict[str, str] = {}
        self._arguments: dict[Expr, str] = {}
        self._sums: dict[frozenset[str], str] = {}
        self._rests: dict[Expr, str] = {}
        self._rested: Counter[str] = Counter()
        self._of: dict[str, str] = {}  # what a part is a part of
        self._often: Counter[tuple[str, str]] = Counter()

    def argument(self, owner: str, argument: Expr) -> tuple[str, bool]:
        """The symbol of what a definition's maximum compares, and whether it is new."""
        if argument in self._arguments:
            return self._arguments[argument], False
        kind, axis = self._kind(argument) if owner not in _OWN else (_OWN[owner][0], "")
        whole = self._whole(owner)
        key = self.book[whole].key if whole in self.book else None
        letter = key.quantity[0] if key is not None and key.quantity[1:2] in ("", "_") else "t"
        stage = "^{(i)}" if key is not None and key.scope == "stage" or owner in _OWN else ""
        taken, words = set(self._arguments.values()), [kind]
        while f"{letter}{stage}: {', '.join(words)}" in taken:
            words = [kind, axis] if axis and len(words) == 1 else [kind, str(len(taken))]
        name = f"{letter}{stage}: {', '.join(words)}"
        below = ",".join(w if w.isdigit() else word(w) for w in words)
        self._arguments[argument] = self.local(name, f"{letter}{stage}_{{{below}}}")
        self._of[name] = owner
        self.meanings[name] = _OWN[owner][1] if owner in _OWN else _WORDS.get(kind, "")
        return name, True

    def rest(self, owner: str, expression: Expr) -> tuple[str, Expr, bool]:
        """A symbol for the longer half of a sum's terms, these, and whether it is new. Terms of the same definition stay together, where they are
        not all."""
        groups: list[Expr] = []
        for monomial, coefficient in expression.terms.items():
            term = Expr({monomial: coefficient})
            near = [g for g in groups if g.symbols() & term.symbols() & self.book.keys()]
            groups = [*(g for g in groups if g not in near), sum(near, term)]
        if len(groups) == 1:
            groups = [Expr({monomial: coefficient}) for monomial, coefficient in expression.terms.items()]
        groups.sort(key=lambda group: len(latex(group, self.names)))
        behind = sum(groups[(len(groups) + 1) // 2 :], Expr({}))
        if behind in self._rests:
            return self._rests[behind], behind, False
        whole = owner
        while whole in self._rests.values():
            whole = self._of[whole]
        count = self._rested[whole]
        self._rested[whole] += 1
        definition = self.book.get(whole)
        left = definition.latex if definition is not None and definition.latex else self.names.get(whole, word(whole))
        name = f"{whole}: rest{f' {count + 1}' if count else ''}"
        self._rests[behind] = self.local(name, _below(left, word("rest") + (f",{count + 1}" if count else "")))
        self._of[name] = owner
        return name, behind, True

    def _whole(self, owner: str) -> str:
        """The definition that something is a part of, a part of a part, too."""
        while owner in self._of:
            owner = self._of[owner]
        return owner

    def _kind(self, argument: Expr) -> tuple[str, str]:
        found: dict[str, str] = {}
        for name in sorted(argument.symbols()):
            definition = self.book.get(name)
            quantity = definition.key.quantity if definition is not None else "Phi" if name in _PEAKS else name
            found.setdefault(quantity, definition.key.axis if definition is not None else "")
        return next(((kind, found[quantity]) for quantity, kind in _KINDS.items() if quantity in found), ("part", ""))

    def subtotals(self, expression: Expr) -> tuple[Expr, list[tuple[str, Expr]]]:
        """The expression with a name for each sum of definitions of one quantity, scope and block that have the same factor; those that are new."""
        groups: dict[tuple[str, str, str, Expr], list[str]] = {}
        for name in sorted(expression.symbols() & self.book.keys(), key=list(self.book).index):
            by = _factor(expression, name)
            key = self.book[name].key
            if by and key.quantity in _SUMMED:
                groups.setdefault((key.quantity, key.scope, key.block, by), []).append(name)
        found: list[tuple[str, Expr]] = []
        for (_, _, _, by), names in groups.items():
            if len(names) > _FEWEST:
                made, new = self._sum(names)
                whole = sum(map(symbol, names), Expr({}))
                expression = expression + by * (symbol(made) - whole)
                found += [(made, whole)] if new else []
        return expression, found

    def of_module(self, whole: Definition, module: str) -> str:
        """The symbol of what a module has of a block's total."""
        name = module.replace("_", " ") or "residual stream"
        left = f"{whole.key.quantity} of {whole.key.block}{' again' if whole.key.again else ''}: {name}"
        return self.local(left, f"{whole.key.quantity}_{{{word(in_words(whole.key.block))},{word(name)}}}")

    def _sum(self, names: list[str]) -> tuple[str, bool]:
        own = frozenset(names)
        if own in self._sums:
            return self._sums[own], False
        key = self.book[names[0]].key
        what = in_words(key.block) if key.block else "states"
        # the same quantity of the same block with other parts
        others = self._often[key.quantity, what]
        self._often[key.quantity, what] += 1
        below = word(what) + (f",{others + 1}" if others else "")
        mark = "^{(i)}" if key.scope == "stage" else ""
        self._sums[own] = self.local(f"{key.quantity} of {what}" + f", {others + 1}" * bool(others), f"{key.quantity}{mark}_{{{below}}}")
        return self._sums[own], True


def _below(name: str, said: str) -> str:
    """A name with a word more at its foot."""
    found = _FOOT.search(name)
    if found is None:
        return rf"{name}_{{{said}}}"
    foot = found[1] or found[2]
    return rf"{name[: found.start()]}_{{{foot},{said}}}{name[found.end() :]}"


def _factor(expression: Expr, name: str) -> Expr:
    """What a symbol is multiplied by, where it stands alone in its terms and in no function; else nothing."""
    own = Symbol(name)
    terms = {m: c for m, c in expression.terms.items() if own in dict(m)}
    if not terms or any(dict(m)[own] != 1 for m in terms) or any(name in _inside(m) for m in expression.terms):
        return Expr({})
    return Expr({tuple(f for f in m if f[0] is not own): c for m, c in terms.items()})


def _inside(monomial: Monomial) -> set[str]:
    return {s for atom, _ in monomial if isinstance(atom, Call) for s in atom.symbols}
