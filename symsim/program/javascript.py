"""What an unrolled derivation gives as a function of JavaScript, which a page runs as its reader moves a size."""

from __future__ import annotations

import json

from symsim.algebra.operators import CALL, GUARD
from symsim.program.python_text import PythonText
from symsim.program.steps import lowered
from symsim.program.straight import LANGUAGES, number, statements
from symsim.program.unrolled import Unrolled
from symsim.program.value import Value


def javascript(unrolled: Unrolled) -> str:
    """The function `kernel` in JavaScript: of an object with the free symbols (the base's number by default), to an object of all
    quantities by name, as `symsim.program.scalar` gives them."""
    own, made = LANGUAGES["js"], lowered(unrolled, kept=True)
    text, lines = statements(own, made.inputs, made.results)
    results = [f"        {json.dumps(o.name)}: {_rounded(text, o.rounded, *made.outputs[o.name])}," for o in unrolled.outputs]
    given = ", ".join(f"{a.name} = {number(a.default)}" for a in unrolled.arguments)
    head = f"function kernel({f'{{ {given} }} = {{}}' if given else ''}) {{"
    return "\n".join([own.prelude, head, *(f"    {line}" for _, line in lines), "    return {", *results, "    };", "}", ""])


def _rounded(text: PythonText, rounded: str, value: Value, left_of: Value | None = None) -> str:
    found = text.text(value)
    if not rounded or value.known:
        return found
    if left_of is not None:
        return f"Math.ceil(({found}) - {text.text(left_of, CALL)} * {GUARD!r})"
    return f"up({found})" if rounded == "up" else f"down({found})"
