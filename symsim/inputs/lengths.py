"""Lengths of the documents that rows are made of: all equal, a lognormal distribution, or those of a file.

A row's attention is a sum over its documents, so what counts are moments of the lengths: E[u^2]/E[u] for the mean work, third and
fourth ones for how much rows differ, and of layers with windows or chunks those of min(u, w) and of u mod w.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from symsim.algebra.expr import Number
from symsim.errors import InputError, cut
from symsim.inputs.reading import read_text
from symsim.inputs.strategy import Strategy

LONGEST = 10**9
_MOST = 10**12
_CHUNKS = 10_000
_LOGNORMAL = re.compile(r"lognormal:\s*([0-9]{1,10}(?:\.[0-9]{1,9})?)\s*[+,]\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)")
_TOKEN = re.compile(r'[^\s,\[\]{}:"]+')
_FORMS = "document_lengths takes a length (1500), lognormal:MEAN+CV (lognormal:1500+0.8) or @FILE"


@dataclass(frozen=True)
class Lengths:
    """Documents: their mean length, the variance over its square, and that of the attention work over its own (further: of rows packed from
    several, alone: of one document each). counted: (length, how many), of a file; longest: (length, FILE:LINE)."""

    mean: Number
    spread: Number = 0
    further: Number = 0
    alone: Number = 0
    counted: tuple[tuple[int, int], ...] = ()
    longest: tuple[int, str] | None = None

    @property
    def varied(self) -> bool:
        return self.spread > 0

    def values(self, alone: bool = False) -> dict[str, Number]:
        """u, and where lengths differ q_u and k_u; alone: of rows of one document each."""
        return {"u": self.mean, **({"q_u": self.spread, "k_u": self.alone if alone else self.further} if self.varied else {})}

    def inside(self, w: int) -> dict[str, Number]:
        """Moments inside a window or chunk of w tokens: u_w, u_ww of min(u, w), and u_r, u_rr of u mod w."""
        if not self.varied:
            return {}
        if self.counted:
            within = [(min(u, w), n) for u, n in self.counted], [(u % w, n) for u, n in self.counted]
            found = tuple(_moment(rows, k) for rows in within for k in (1, 2))
        else:
            found = _lognormal_inside(float(self.mean), float(self.spread), w)
        return dict(zip(("u_w", "u_ww", "u_r", "u_rr"), found))


def documents(strategy: Strategy) -> Lengths | None:
    """The documents in a strategy's rows, None where a row is one document. InputError for a text or a file that says none."""
    if strategy.document_lengths is None:
        return None if strategy.packed_document_length is None else Lengths(strategy.packed_document_length)
    text = strategy.document_lengths.strip()
    if text.startswith("@"):
        return _of_file(text[1:], _stamp(text[1:]))
    return _of_text(text)


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
    ratio = 1 + cv**2
    return Lengths(mean, cv**2, ratio**4 - 2 * ratio**2 + ratio, ratio**4 - 1)


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


def of_counts(rows: tuple[tuple[int, int], ...], longest: tuple[int, str] | None = None) -> Lengths:
    """Of (length, how many) rows, exactly."""
    first, second, third, fourth = (_moment(rows, k) for k in (1, 2, 3, 4))
    weighted = Fraction(second) / first
    further = (fourth - 2 * weighted * third + weighted**2 * second) / (first * weighted) ** 2
    return Lengths(first, Fraction(second) / first**2 - 1, further, fourth / Fraction(second) ** 2 - 1, rows, longest)


def _moment(rows: "tuple[tuple[int, int], ...] | list[tuple[int, int]]", power: int) -> Number:
    found = Fraction(sum(n * u**power for u, n in rows), sum(n for _, n in rows))
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
            if not isinstance(often, int) or isinstance(often, bool) or not 0 < often <= _MOST:
                raise InputError(f"{path}:{line}: {cut(str(often), 40)} documents of {length} tokens; a whole number from 1 to {_MOST:,} is needed")
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


def _lognormal_inside(mean: float, spread: float, w: int) -> tuple[Number, ...]:
    """E[min(u, w)], E[min(u, w)^2], E[u mod w], E[(u mod w)^2] of a lognormal distribution: partial moments up to every multiple of w."""
    sigma2 = math.log1p(spread)
    sigma, center = math.sqrt(sigma2), math.log(mean) - sigma2 / 2

    def below(k: int, x: float) -> float:
        """E[u^k where u <= x]."""
        whole = math.exp(k * center + k * k * sigma2 / 2)
        return whole * 0.5 * math.erfc((center + k * sigma2 - math.log(x)) / (sigma * math.sqrt(2)))

    over = 1 - below(0, w)
    first, second = below(1, w) + w * over, below(2, w) + w * w * over
    rest = [below(1, w), below(2, w)]
    for j in range(1, min(_CHUNKS, math.ceil(math.exp(center + 8 * sigma) / w) + 1)):
        share, one, two = (below(k, (j + 1) * w) - below(k, j * w) for k in (0, 1, 2))
        rest[0] += one - j * w * share
        rest[1] += two - 2 * j * w * one + (j * w) ** 2 * share
    return tuple(Fraction(x).limit_denominator(10**6) for x in (first, second, *rest))
