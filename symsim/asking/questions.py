"""Questions as people type them, one a line:

    elasticity t_step                       elasticity t_step by B_1, s
    crossing c_f_dense_tp = t_f_dense over B_1
    largest s where M_peak <= 80 GiB        smallest tp=1:64 where time.step <= 4 s
    needed B_2 for t_step <= 4 s            needed B_2=25:400 GB/s for t_step <= 4 s
    t_step, M_peak over B_1=200:900:50 GB/s

Quantities, conditions and ranges are read by the grammars of formulas, conditions and axes; here only the words between them are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from symsim.asking.answers import Answer
from symsim.asking.verbs import along, crossing, elasticity, largest, needed, smallest
from symsim.errors import InputError, cut, near
from symsim.evaluation.numbers import Evaluation

_FORMS = {
    "elasticity": "elasticity QUANTITY [by SYMBOLS]",
    "crossing": "crossing QUANTITY = QUANTITY over SYMBOL",
    "largest": "largest SYMBOL where CONDITION",
    "smallest": "smallest SYMBOL where CONDITION",
    "needed": "needed SYMBOL for CONDITION",
}
_ALONG = "QUANTITIES over SYMBOL=START:END:STEP"
_EQUAL = re.compile(r"(?<![<>=!])==?(?!=)")


def ask(result: Evaluation, question: str) -> Answer:
    """The answer to one question; InputError says what does not read, or what there is not."""
    if isinstance(question, (list, tuple)):
        raise InputError("a question is one text: several are asked one by one, as [result.ask(text) for text in questions]")
    if not isinstance(question, str):
        raise InputError(f"{cut(repr(question))} is no question: text such as 'largest s where M_peak <= 80 GiB' is")
    text = " ".join(question.split())
    verb, _, rest = text.partition(" ")
    if verb == "elasticity":
        of, by = _two(rest, "by", "elasticity", needed="by" in rest.split())
        return elasticity(result, of, by or None)
    if verb == "crossing":
        sides, over = _two(rest, "over", "crossing")
        parts = _EQUAL.split(sides)
        if len(parts) != 2 or not all(p.strip() for p in parts):
            raise _form("crossing", text)
        return crossing(result, parts[0].strip(), parts[1].strip(), over)
    if verb in ("largest", "smallest"):
        name, where = _two(rest, "where", verb)
        return (largest if verb == "largest" else smallest)(result, name, where)
    if verb == "needed":
        name, for_ = _two(rest, "for", verb)
        return needed(result, name, for_)
    names, over = _last(text, "over")
    if not over:
        raise _unread(verb, text)
    return along(result, names, over)


def answers(result: Evaluation, asked: Sequence[str]) -> list[Answer]:
    """The answers to several questions; InputError as `ask`, of several with the one that has none."""
    found = []
    for text in asked:
        try:
            found.append(ask(result, text))
        except InputError as error:
            raise error if len(asked) == 1 or f"'{cut(text)}'" in str(error) else InputError(f"'{cut(text)}': {error}") from None
    return found


def questions(texts: Iterable[str]) -> list[str]:
    """The questions of several texts, one a line; InputError where there is none."""
    found = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    if not found:
        raise InputError(f"nothing is asked: write {_FORMS['largest']}, or one of the others that 'symsim ask --help' lists")
    return found


def _two(text: str, word: str, verb: str, *, needed: bool = True) -> tuple[str, str]:
    left, right = _last(text, word)
    if not left or (needed and not right):
        raise _form(verb, f"{verb} {text}")
    return left, right


def _last(text: str, word: str) -> tuple[str, str]:
    """What stands before and behind the last such word."""
    padded = f" {text} "
    left, found, right = padded.rpartition(f" {word} ")
    return (left.strip(), right.strip()) if found else (text.strip(), "")


def _form(verb: str, text: str) -> InputError:
    return InputError(f"'{cut(text)}' does not read: {_FORMS[verb]} is its form")


def _unread(verb: str, text: str) -> InputError:
    close = near(verb, list(_FORMS))
    hint = f"did you mean '{close[0]}'?" if close else f"a question begins with {', '.join(_FORMS)}, or is {_ALONG}"
    return InputError(f"'{cut(text)}' is no question: {hint}")
