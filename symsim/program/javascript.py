"""What unrolled derivations give as a function of JavaScript, which a page runs as its reader moves a size or chooses another of them."""

from __future__ import annotations

import json

from symsim.algebra.operators import CALL, GUARD
from symsim.program.python_text import PythonText
from symsim.program.straight import LANGUAGES, number, statements
from symsim.program.together import Together
from symsim.program.value import Value


def javascript(made: Together) -> str:
    """The function `kernel` in JavaScript: of an object with the free symbols (the base's number by default) and the place of one of the
    derivations, to an object of all quantities by name, as `symsim.program.scalar` gives them."""
    own = LANGUAGES["js"]
    text, lines = statements(own, made.inputs, made.results)
    results = [f"        {json.dumps(output.name)}: {_rounded(text, output.rounded, *found)}," for output, found in made.outputs]
    given = ", ".join(f"{a.name} = {number(a.default)}" for a in made.arguments)
    head = [f"function kernel({f'{{ {given} }}' if given else '_'} = {{}}, place = 0) {{"]
    if made.told:
        truths = [list(map(int, own)) for own in made.truths]
        told = f"    const [{', '.join(made.told)}] = TOLD[place];"
        head = [f"const TOLD = {json.dumps(truths, separators=(',', ':'))};", *head, told]
    return "\n".join([own.prelude, *head, *(f"    {line}" for _, line in lines), "    return {", *results, "    };", "}", ""])


def _rounded(text: PythonText, rounded: str, value: Value, left_of: Value | None = None) -> str:
    found = text.text(value)
    if not rounded or value.known:
        return found
    if left_of is not None:
        return f"Math.ceil(({found}) - {text.text(left_of, CALL)} * {GUARD!r})"
    return f"up({found})" if rounded == "up" else f"down({found})"
