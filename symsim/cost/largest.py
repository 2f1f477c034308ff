"""The largest of n standard normal numbers: its mean, and what it exceeds once in 2, 10 or 100 times; and the mean of the longest of n rows.

That n numbers all stay below x has the probability Phi(x)^n, so the quantile q of the largest is Phi^-1(q^(1/n)), and its mean the integral
over q (Tippett, Biometrika 17, 1925). Both are integrated or inverted to four digits at powers of two; between those a chord over
n^(1/8), which all rows are concave over: at most 1.8 % too little, for the quantiles 90 % and 99 % at most 0.5 %.

Of rows that are no normal numbers the longest follows from the same mean by a polynomial (Cornish and Fisher), whose coefficients are of how long
documents are (`symsim/inputs/longest_rows.py`). How much the longest of n varies follows from those of 2 n and 4 n (L-moments: Hosking, J. R. Stat.
Soc. B 52, 1990).
"""

from __future__ import annotations

from fractions import Fraction

from symsim.algebra.expr import ONE, ZERO, Expr, maximum, minimum, sqrt, symbol
from symsim.algebra.vocabulary import LONGEST_TERMS

SOURCE = "Tippett, Biometrika 17, 1925"
OF_ROWS = "David and Nagaraja, Order Statistics, 2003; Cornish and Fisher, Rev. Inst. Int. Stat. 5, 1938"

# of 1, 2, 4, .. numbers
LARGEST: dict[str, tuple[float, ...]] = {
    "mean": (
        *(0.0, 0.5642, 1.0294, 1.4236, 1.7660, 2.0697, 2.3437, 2.5946, 2.8269, 3.0439, 3.2482),
        *(3.4418, 3.6261, 3.8023, 3.9714, 4.1341, 4.2911, 4.4430, 4.5903, 4.7332, 4.8723),
    ),
    "50": (
        *(0.0, 0.5450, 0.9981, 1.3852, 1.7235, 2.0251, 2.2983, 2.5491, 2.7817, 2.9993, 3.2044),
        *(3.3988, 3.5840, 3.7610, 3.9309, 4.0945, 4.2524, 4.4050, 4.5530, 4.6967, 4.8364),
    ),
    "90": (
        *(1.2816, 1.6322, 1.9432, 2.2237, 2.4803, 2.7177, 2.9393, 3.1477, 3.3450, 3.5326, 3.7118),
        *(3.8837, 4.0490, 4.2084, 4.3625, 4.5117, 4.6566, 4.7974, 4.9344, 5.0680, 5.1984),
    ),
    "99": (
        *(2.3263, 2.5750, 2.8058, 3.0220, 3.2259, 3.4192, 3.6034, 3.7797, 3.9489, 4.1118, 4.2691),
        *(4.4212, 4.5687, 4.7119, 4.8513, 4.9869, 5.1193, 5.2485, 5.3748, 5.4983, 5.6193),
    ),
}
# the means of the largest of 1,024, 2,048 and 4,096, as far as coefficients of rows are for: of as many, of twice and of four times as many
FARTHEST = tuple(Fraction(str(mean)) for mean in LARGEST["mean"][10:13])
_POWERS = sorted({k for k, _ in LONGEST_TERMS})


def _chords(values: tuple[float, ...]) -> list[tuple[Fraction, Fraction]]:
    """Slopes and offsets of the lines through neighbours, over the eighth root."""
    found = []
    for k, (low, high) in enumerate(zip(values, values[1:])):
        left, right = 2 ** (k / 8), 2 ** ((k + 1) / 8)
        slope = (high - low) / (right - left)
        found.append((Fraction(round(slope * 10**4), 10**4), Fraction(round((low - slope * left) * 10**4), 10**4)))
    return found


_CHORDS = {what: _chords(values) for what, values in LARGEST.items()}


def expected_largest(n: Expr, what: str = "mean") -> Expr:
    """Of n standard normal numbers; what: its mean, or the quantile in percent."""
    if n.is_constant and n.constant() == 1:
        first = LARGEST[what][0]
        return ZERO if not first else ZERO + Fraction(str(first))
    return minimum(*(slope * sqrt(sqrt(sqrt(n))) + rest for slope, rest in _CHORDS[what]))


def expected_longest(mean: Expr, added: Expr, rho: str) -> Expr:
    """Of sums of so many rows with these coefficients, in deviations of such a sum; mean: that of the largest of as many normal numbers."""
    return maximum(0, mean + sum((_coefficient(rho, added, k) * mean**k for k in _POWERS), ZERO))


def variance_of_longest(longest: Expr, of_twice: Expr, of_fourfold: Expr) -> Expr:
    """Of the longest of n sums, from how far it, that of 2 n and that of 4 n lie above the mean: exact for one normal and one exponential number, and
    within 5 % for the largest of as many of either as there may be."""
    twice, fourfold = of_twice - longest, of_fourfold - of_twice
    return maximum(0, twice * (Fraction("1.08") * twice + Fraction("2.5") * fourfold))


def _coefficient(rho: str, added: Expr, power: int) -> Expr:
    """What of the polynomial has this power of the mean."""
    root = ONE / sqrt(added)
    return sum((symbol(f"{rho}_{k}_{i}") * root**i for k, i in LONGEST_TERMS if k == power), ZERO)
