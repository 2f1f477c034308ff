"""The text of a pipeline_model_parallel_layout."""

from __future__ import annotations

import re

from symsim.errors import InputError, cut


def pipeline_layout(text: str) -> tuple[str, ...]:
    """The stages of a pipeline_model_parallel_layout, written out: `Et*2|(tt|)*2L` is `Ett`, `tt`, `tt`, `L`.

    E embedding, t layer, m multi-token prediction depth, L loss; `x*n` and `(..)*n` repeat; commas and blanks are
    cosmetic (pipeline_parallel_layer_layout.py:283).
    """

    def refuse(reason: str) -> InputError:
        return InputError(f"pipeline_model_parallel_layout '{cut(text)}' {reason}")

    def repeated(match: re.Match[str]) -> str:
        unit, count = match[1] if match[1] is not None else match[2], int(match[3] or 1)
        if len(unit) * count > 10_000:
            raise refuse("stands for more than 10000 entries")
        return unit * count

    if len(text) > 100_000:
        raise refuse("is too long")
    left = re.sub(r"[\s,]", "", text)
    stray = re.search(r"[^EtmL|()*0-9]", left)
    if stray:
        raise refuse(f"has '{stray[0]}'; only E, t, m, L, |, ( ) and *N are read")
    if re.search(r"[0-9]{6}", left):
        raise refuse("stands for more than 10000 entries")
    while True:
        shorter = re.sub(r"(?:\(([EtmL|]*)\)|([EtmL|])(?=\*))(?:\*([0-9]+))?", repeated, left)
        if len(shorter) > 10_000:
            raise refuse("stands for more than 10000 entries")
        if shorter == left:
            break
        left = shorter
    stray = re.search(r"[^EtmL|]", left)
    if stray:
        raise refuse(f"does not read at '{left[stray.start() :][:20]}'")
    return tuple(left.split("|"))
