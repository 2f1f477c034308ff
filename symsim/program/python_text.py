"""Values of a program as Python: those used more than once by a name of their own, in order; the rest inside what uses them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from symsim.algebra.operators import LOOSEST, OPERATORS
from symsim.program.plan import operations
from symsim.program.value import Value

# operands that Python's parser and a reader take in one line
_LONGEST = 400


class PythonText:
    """The text of values in one dialect: plain Python over floats, or NumPy. names: by value, what it is called."""

    def __init__(
        self,
        outputs: Sequence[Value],
        names: dict[int, str],
        *,
        function: Callable[["PythonText", Value], str],
        number: Callable[[Any], str],
        assign: Callable[[Value, str], str],
        signs: Collection[str] = frozenset(OPERATORS),
    ):
        """function: of an operation without a sign, or whose sign is none of `signs` here. assign: puts a text down under a name, which it
        gives."""
        self.outputs, self.names = outputs, names
        self._function, self._number, self._assign, self._signs = function, number, assign, signs
        self.uses: dict[int, int] = {}
        self._texts: dict[int, str] = {}

    def print(self) -> None:
        """Put down what is used more than once, and what the program keeps."""
        order = operations(self.outputs)
        first: dict[int, Value] = {}
        for value in order:
            for arg in value.args:
                first.setdefault(arg.id, value)
        for value in (*(arg for made in order for arg in made.args), *self.outputs):
            self.uses[value.id] = self.uses.get(value.id, 0) + 1
        for value in order:
            if value.op == "input":
                continue
            if value.op == "kept":
                self.names[value.id] = self._assign(value, self.text(value.args[0]))
                # what is kept needs no second name
                self.names.setdefault(value.args[0].id, self.names[value.id])
                continue
            self._texts[value.id] = text = self._operation(value)
            often = self.uses[value.id] > 1 and not (value.id in first and first[value.id].op == "kept")
            if often or len(text) > _LONGEST:
                self.named(value)

    def text(self, value: Value, binding: int = LOOSEST) -> str:
        """A value where nothing that binds less than `binding` may stand bare."""
        if value.known:
            return self._number(value.data)
        if value.id in self.names:
            return self.names[value.id]
        row, found = OPERATORS[value.op], self._texts[value.id]
        return f"({found})" if row.sign and row.binds < binding else found

    def named(self, value: Value) -> str:
        """A name or a number, made if need be: what is read twice."""
        if not value.known and value.id not in self.names:
            self.names[value.id] = self._assign(value, self._texts[value.id])
        return self.text(value)

    def _operation(self, value: Value) -> str:
        row = OPERATORS[value.op]
        if not row.sign or value.op not in self._signs:
            return self._function(self, value)
        args = value.args
        front, behind = [a.known for a in args] == [True, False], [a.known for a in args] == [False, True]
        if (value.op == "add" and front) or (value.op == "mul" and behind):
            # as people write them: numbers in front of a product, behind a sum
            args = args[::-1]
        if value.op == "add" and args[1].known and args[1].data < 0:
            return f"{self.text(args[0], row.inside(0))} - {self._number(-args[1].data)}"
        texts = [self.text(a, row.inside(k)) for k, a in enumerate(args)]
        return f" {row.sign.strip()} ".join(texts) if len(texts) > 1 else row.text(*texts)
