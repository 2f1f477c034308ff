"""Lengths of the documents that rows are made of: all equal, a lognormal distribution, or those of a file.

A row's attention is a sum over its documents, so what counts are moments of the lengths: E[u^2]/E[u] for the mean work, those up to the
fourth for how much rows differ, and of layers with windows or chunks those of min(u, w) and of u mod w. Of a lognormal distribution a row holds no
more of a document than fits: moments are those of min(u, row).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import cast

from symsim.algebra.expr import Number
from symsim.algebra.vocabulary import LONGEST_TERMS as TERMS
from symsim.errors import InputError, cut
from symsim.inputs.cut_rows import PARTS, work_of_rows
from symsim.inputs.reading import read_text
from symsim.inputs.strategy import Strategy

LONGEST = 10**9
_MOST = 10**12
_CHUNKS = 10_000
_LOGNORMAL = re.compile(r"lognormal:\s*([0-9]{1,10}(?:\.[0-9]{1,9})?)\s*[+,]\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)")
_TOKEN = re.compile(r'[^\s,\[\]{}:"]+')
_FORMS = "document_lengths takes a length (1500), lognormal:MEAN+CV (lognormal:1500+0.8) or @FILE, cut: before it where rows cut them"
_CUT = "cut:"
LONGEST_CUT = 2**22
# of rows of more pieces their ends do not matter
_MOST_PIECES = PARTS / 4
# of a lognormal distribution: so many bins, so many deviations to either side
_BINS, _DEVIATIONS = 3000, 8


@dataclass(frozen=True)
class Lengths:
    """Documents: their mean length, the variance over its square, and that of the attention work over its own (further: of rows packed from
    several, alone: of one document each). counted: (length, how many), of a file or of what rows are cut into; longest: (length, FILE:LINE);
    uncut: E[u^2]/E[u] of documents as they are given, of pieces where rows cut them; said: mean and spread of a lognormal distribution; stream:
    (length, share) of what rows of `row` tokens are filled with, begins_anywhere: each in any of its tokens."""

    mean: Number
    spread: Number = 0
    further: Number = 0
    alone: Number = 0
    counted: "tuple[tuple[int, int | float], ...]" = ()
    longest: tuple[int, str] | None = None
    uncut: Number = 0
    said: tuple[Number, Number] = (0, 0)
    stream: "Sequence[tuple[float, float]]" = ()
    row: int = 0
    begins_anywhere: bool = False

    @property
    def varied(self) -> bool:
        return self.spread > 0

    def values(self, alone: bool = False) -> dict[str, Number]:
        """u, and where lengths differ q_u, k_u and what the longest rows follow from (rho_u); alone: of rows of one document each, whose tokens
        differ too (rho_t)."""
        if not self.varied:
            return {"u": self.mean}
        return {"u": self.mean, "q_u": self.spread, "k_u": self.alone if alone else self.further, **(self._of_one if alone else self._of_several)}

    @cached_property
    def _of_one(self) -> dict[str, Number]:
        from symsim.inputs.longest_rows import of_documents

        return _named("rho_t", of_documents(self.stream, 1)) | _named("rho_u", of_documents(self.stream, 2))

    @cached_property
    def _of_several(self) -> dict[str, Number]:
        from symsim.inputs.longest_rows import of_packed

        return _named("rho_u", of_packed(self.stream, self.row, self.begins_anywhere))

    def inside(self, w: int) -> dict[str, Number]:
        """Moments inside a window or chunk of w tokens: u_w, u_ww of min(u, w), and u_r, u_rr of u mod w."""
        if not self.varied:
            return {}
        if self.counted:
            within = [(min(u, w), n) for u, n in self.counted], [(u % w, n) for u, n in self.counted]
            found = tuple(_moment(rows, k) for rows in within for k in (1, 2))
        else:
            found = _lognormal_inside(float(self.said[0]), float(self.said[1]), w, self.row)
        return dict(zip(("u_w", "u_ww", "u_r", "u_rr"), found))


def documents(strategy: Strategy) -> Lengths | None:
    """The documents in a strategy's rows, None where a row is one document. InputError for a text or a file that says none."""
    if strategy.document_lengths is None:
        return None if strategy.packed_document_length is None else Lengths(strategy.packed_document_length)
    text = strategy.document_lengths.strip()
    path = text.removeprefix(_CUT).strip()
    return (_cut if is_cut(strategy) else _whole)(path, _stamp(path.removeprefix("@")), strategy.seq_length)


def is_cut(strategy: Strategy) -> bool:
    """Whether documents follow one another through all rows, cut wherever a row ends, and the lengths are those before."""
    return strategy.document_lengths is not None and strategy.document_lengths.strip().startswith(_CUT)


def stand_on_rows(strategy: Strategy) -> bool:
    """Whether how long rows are decides what there is of documents: of those that rows cut, and of those that differ."""
    return strategy.document_lengths is not None and not strategy.document_lengths.strip().isdecimal()


def _given(text: str) -> Lengths:
    return _of_file(text[1:], _stamp(text[1:])) if text.startswith("@") else _of_text(text)


@lru_cache(maxsize=16)
def _whole(text: str, stamp: tuple[int, int], row: int) -> Lengths:
    """What rows of so many tokens hold that documents are put into uncut, but for what of one is longer than a row."""
    said = _given(text)
    if not said.varied:
        return replace(said, row=row)
    found, stream = said, cast("Sequence[tuple[float, float]]", said.counted)
    if not said.counted:
        below = _partial_moments(float(said.mean), float(said.spread))
        found = _rounded(_of_moments([below(k, row) + row**k * (1 - below(0, row)) for k in range(1, 5)]))
        stream = _bins(float(said.mean), float(said.spread), row)
    if row < float(found.mean) * _MOST_PIECES:
        variance = work_of_rows(stream, row, False) * row / float(found.mean)
        found = replace(found, further=Fraction(variance).limit_denominator(10**6))
    return replace(found, uncut=said.uncut, said=(0, 0) if said.counted else (said.mean, said.spread), stream=stream, row=row)


def _bins(mean: float, spread: float, row: int) -> tuple[tuple[float, float], ...]:
    """Mean lengths and shares of documents of a lognormal distribution between lengths that grow by the same factor, of which a row cuts the rest."""
    below, sigma = _partial_moments(mean, spread), math.log1p(spread) ** 0.5
    center = math.log(mean) - sigma**2 / 2
    top = min(math.log(row), center + _DEVIATIONS * sigma)
    ends = [math.exp(center - _DEVIATIONS * sigma + (top - center + _DEVIATIONS * sigma) * k / _BINS) for k in range(_BINS + 1)]
    shares, tokens = ([below(k, x) for x in ends] for k in (0, 1))
    found = [((t - tt) / (p - pp), p - pp) for p, pp, t, tt in zip(shares[1:], shares, tokens[1:], tokens) if p - pp > 1e-15]
    return (*found, (float(row), 1 - shares[-1])) if top == math.log(row) else tuple(found)


@lru_cache(maxsize=16)
def _cut(text: str, stamp: tuple[int, int], row: int) -> Lengths:
    """What rows of so many tokens hold of documents that lie anywhere in them. Of the row places at which a document of u tokens may begin in a
    row, |row - u| + 1 leave a piece of min(u, row) tokens, and two each shorter one; how much rows differ is that of whole rows."""
    whole = _given(text)
    if row > LONGEST_CUT:
        raise InputError(f"document_lengths={cut(text, 60)}: is cut for rows of at most {LONGEST_CUT:,} tokens, not of seq_length={row:,}")
    counted: Sequence[tuple[int, int | float]] = whole.counted or ((int(whole.mean), 1),)
    if whole.varied and not whole.counted:
        counted = _lognormal_counts(float(whole.mean), float(whole.spread), row)
    left: dict[int, int | float] = defaultdict(int)
    pieces: dict[int, int | float] = defaultdict(int)
    for u, n in counted:
        left[min(u, row)] += n
        pieces[min(u, row)] += n * (abs(row - u) + 1)
    above: int | float = 0
    for v in range(max(left), 0, -1):
        pieces[v] += 2 * above
        above += left.get(v, 0)
    found = of_counts(tuple(sorted((v, n) for v, n in pieces.items() if n > 0)))
    if row < float(found.mean) * _MOST_PIECES:
        variance = work_of_rows(counted, row, True) * row / float(found.mean)
        found = replace(found, further=Fraction(variance).limit_denominator(10**6))
    found = replace(found, stream=counted, row=row, begins_anywhere=True)
    return found if whole.counted or not whole.varied else _rounded(found)


def _rounded(found: Lengths) -> Lengths:
    mean, spread, further, alone = (Fraction(x).limit_denominator(10**6) for x in (found.mean, found.spread, found.further, found.alone))
    return replace(found, mean=mean, spread=spread, further=further, alone=alone)


def _lognormal_counts(mean: float, spread: float, row: int) -> list[tuple[int, float]]:
    """Shares of documents of every length up to a row; of longer ones that of the row's and, of their mean length, that of the rest."""
    below = _partial_moments(mean, spread)
    found = [(v, below(0, v + 0.5) - (below(0, v - 0.5) if v > 1 else 0)) for v in range(1, row + 1)]
    over = 1 - below(0, row + 0.5)
    if over * mean < 1e-12:
        return found
    return [*found, (round((mean - below(1, row + 0.5)) / over), over)]


def attention_documents(strategy: Strategy) -> Lengths | None:
    """The documents that attention stays inside; None where it works on whole rows."""
    return None if strategy.mlp_padding_free else documents(strategy)


def networks_pack(strategy: Strategy) -> bool:
    """Whether feed-forward networks work on fewer tokens than rows have."""
    lengths = documents(strategy) if strategy.mlp_padding_free else None
    return lengths is not None and lengths.mean < strategy.seq_length


def row_tokens(strategy: Strategy) -> Number:
    """Tokens of a row, on average."""
    lengths = documents(strategy) if strategy.padding_free else None
    return strategy.seq_length if lengths is None else lengths.mean


@lru_cache(maxsize=64)
def _of_text(text: str) -> Lengths:
    if re.fullmatch("[0-9]{1,12}", text) and 0 < int(text) <= LONGEST:
        return Lengths(int(text))
    found = _LOGNORMAL.fullmatch(text)
    mean, cv = map(Fraction, found.groups()) if found else (Fraction(0), Fraction(0))
    if not 1 <= mean <= LONGEST or not 0 <= cv <= 100:
        if os.path.isfile(text):
            raise InputError(f"document_lengths={cut(text, 60)}: a file stands behind @: document_lengths=@{cut(text, 60)}")
        raise InputError(f"document_lengths={cut(text, 60)}: {_FORMS}; a mean from 1 to {LONGEST:,} tokens, a coefficient of variation from 0 to 100")
    return _of_moments([mean**k * (1 + cv**2) ** (k * (k - 1) // 2) for k in range(1, 5)])


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=16)
def _of_file(path: str, stamp: tuple[int, int]) -> Lengths:
    """A JSON list of lengths, a JSON object of counts by length, or one length a line."""
    counts: Counter[int] = Counter()
    longest = (0, path)
    for length, often, line in _rows(read_text(path), path):
        counts[length] += often
        longest = max(longest, (length, f"{path}:{line}"), key=lambda row: row[0])
    if not counts:
        raise InputError(f"{path}: holds no lengths: a JSON list of integers, a JSON object of counts by length, or one integer a line is needed")
    return of_counts(tuple(sorted(counts.items())), longest)


def of_counts(rows: "tuple[tuple[int, int | float], ...]", longest: tuple[int, str] | None = None) -> Lengths:
    """Of (length, how many) rows, exactly where these are whole."""
    return _of_moments([_moment(rows, k) for k in range(1, 5)], rows, longest)


def _of_moments(moments: Sequence[Number], rows: "tuple[tuple[int, int | float], ...]" = (), longest: tuple[int, str] | None = None) -> Lengths:
    """Of the first four."""
    first, second, third, fourth = moments
    mean = Fraction(second) / first
    square = fourth - 2 * mean * third + mean**2 * second
    further, alone = square / (first * mean) ** 2, fourth / Fraction(second) ** 2 - 1
    return Lengths(first, Fraction(second) / first**2 - 1, further, alone, rows, longest, mean)


def _named(name: str, coefficients: Sequence[float]) -> dict[str, Number]:
    return {f"{name}_{k}_{i}": Fraction(c).limit_denominator(10**6) for c, (k, i) in zip(coefficients, TERMS)}


def _moment(rows: "Sequence[tuple[int, int | float]]", power: int) -> Number:
    above, below = sum(n * u**power for u, n in rows), sum(n for _, n in rows)
    found = Fraction(above, below) if isinstance(above, int) and isinstance(below, int) else Fraction(above / below)
    return int(found) if found.denominator == 1 else found


def _rows(text: str, path: str) -> Iterator[tuple[int, int, int]]:
    """(length, how many, line)."""
    start = text.lstrip()[:1]
    if start not in ("[", "{"):
        for line, row in enumerate(text.splitlines(), 1):
            if row.strip():
                yield _length(row.strip(), path, line), 1, line
        return
    try:
        data = json.loads(text, object_pairs_hook=list)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except (RecursionError, ValueError):
        raise InputError(f"{path}: is no JSON list of lengths, nor an object of counts by length") from None
    lines = _lines(text)
    for row in data:
        line = next(lines, 1)
        if start == "[":
            yield _length(row, path, line), 1, line
        else:
            length, often, line = _length(row[0], path, line), row[1], next(lines, line)
            if not isinstance(often, int) or isinstance(often, bool) or not 0 <= often <= _MOST:
                raise InputError(f"{path}:{line}: {cut(str(often), 40)} documents of {length} tokens; a whole number from 0 to {_MOST:,} is needed")
            if often:
                yield length, often, line


def _lines(text: str) -> Iterator[int]:
    """The line of every scalar, in order."""
    line, last = 1, 0
    for token in _TOKEN.finditer(text):
        line += text.count("\n", last, token.start())
        last = token.start()
        yield line


def _length(given: object, path: str, line: int) -> int:
    value = int(given) if isinstance(given, str) and re.fullmatch("[0-9]{1,12}", given) else given
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LONGEST:
        raise InputError(
            f"{path}:{line}: '{cut(str(given), 40)}' is no length of a document: a whole number of tokens from 1 to {LONGEST:,} is needed"
        )
    return value


def _lognormal_inside(mean: float, spread: float, w: int, row: int) -> tuple[Number, ...]:
    """E[min(u, w)], E[min(u, w)^2], E[u mod w], E[(u mod w)^2] of a lognormal distribution that rows cut: partial moments up to multiples of w."""
    below = _partial_moments(mean, spread)
    over, cut = (1 - below(0, x) for x in (min(w, row), row))
    first, second = (below(k, min(w, row)) + min(w, row) ** k * over for k in (1, 2))
    rest = [(row % w) ** k * cut for k in (1, 2)]
    sigma2 = math.log1p(spread)
    longest = min(row, mean * math.exp(8 * math.sqrt(sigma2) - sigma2 / 2))
    for j in range(min(_CHUNKS, math.ceil(longest / w))):
        start, end = j * w, min(row, (j + 1) * w)
        share, one, two = (below(k, end) - (below(k, start) if start else 0) for k in (0, 1, 2))
        rest[0] += one - start * share
        rest[1] += two - 2 * start * one + start**2 * share
    return tuple(Fraction(x).limit_denominator(10**6) for x in (first, second, *rest))


def _partial_moments(mean: float, spread: float) -> Callable[[int, float], float]:
    """E[u^k where u <= x] of a lognormal distribution, by k and x."""
    sigma2 = math.log1p(spread)
    sigma, center = math.sqrt(sigma2), math.log(mean) - sigma2 / 2

    def below(k: int, x: float) -> float:
        whole = math.exp(k * center + k * k * sigma2 / 2)
        return whole * 0.5 * math.erfc((center + k * sigma2 - math.log(x)) / (sigma * math.sqrt(2)))

    return below
