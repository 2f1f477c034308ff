"""The largest of n standard normal numbers: its mean, and what it exceeds once in 2, 10 or 100 times; and the mean of the largest of n skewed ones.

That n numbers all stay below x has the probability Phi(x)^n, so the quantile q of the largest is Phi^-1(q^(1/n)), and its mean the integral
over q (Tippett, Biometrika 17, 1925). Both are integrated or inverted to four digits at powers of two; between those a chord over
n^(1/8), which all rows are concave over: at most 1.8 % too little, for the quantiles 90 % and 99 % at most 0.5 %. Of the variance chords are
taken over the mean, which it is convex over: at most 4.6 % too much.

Numbers with a skewness are taken as those of a Pearson III (gamma) distribution, whose quantiles Wilson and Hilferty's cube root makes of normal
ones (Proc. Natl. Acad. Sci. 17, 1931), a cubic in them (Kite, Frequency and Risk Analyses in Hydrology, 1977), of which the mean follows from the
mean and variance of the largest normal number. Of two to 512 numbers with a skewness of up to 3 that is 5 % from the mean of the largest
gamma-distributed one, of 4,096 8 %; the cube root holds for no larger skewness, so that 3 is taken there.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from symsim.algebra.expr import ZERO, Expr, maximum, minimum, sqrt

SOURCE = "Tippett, Biometrika 17, 1925"
OF_SKEWED = "Wilson and Hilferty, Proc. Natl. Acad. Sci. 17, 1931; Kite, Frequency and Risk Analyses in Hydrology, 1977"
MOST_SKEWED = 3

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
# of how many numbers, and the variance of the largest
VARIANCE = {1: 1.0, 2: 0.6817, 4: 0.4917, 8: 0.3729, 16: 0.2950, 64: 0.2035, 256: 0.1537, 4096: 0.1025, 2**20: 0.0613}


def _chords(values: tuple[float, ...]) -> list[tuple[Fraction, Fraction]]:
    """Slopes and offsets of the lines through neighbours, over the eighth root."""
    return _lines([(2 ** (k / 8), value) for k, value in enumerate(values)])


def _lines(points: Sequence[tuple[float, float]]) -> list[tuple[Fraction, Fraction]]:
    found = []
    for (left, low), (right, high) in zip(points, points[1:]):
        slope = (high - low) / (right - left)
        found.append((Fraction(round(slope * 10**4), 10**4), Fraction(round((low - slope * left) * 10**4), 10**4)))
    return found


_VARIANCES = _lines([(LARGEST["mean"][n.bit_length() - 1], value) for n, value in VARIANCE.items()])
_CHORDS = {what: _chords(values) for what, values in LARGEST.items()}


def expected_largest(n: Expr, what: str = "mean") -> Expr:
    """Of n standard normal numbers; what: its mean, or the quantile in percent."""
    if n.is_constant and n.constant() == 1:
        first = LARGEST[what][0]
        return ZERO if not first else ZERO + Fraction(str(first))
    return minimum(*(slope * sqrt(sqrt(sqrt(n))) + rest for slope, rest in _CHORDS[what]))


def variance_of_largest(mean: Expr) -> Expr:
    """Of normal numbers of which the largest has this mean."""
    return maximum(*(slope * mean + rest for slope, rest in _VARIANCES))


def sixth_of_skewness(skewness: Expr) -> Expr:
    """As far as the cube root holds."""
    return maximum(-MOST_SKEWED, minimum(MOST_SKEWED, skewness)) / 6


def expected_largest_skewed(mean: Expr, variance: Expr, sixth: Expr) -> Expr:
    """Of numbers with mean 0, variance 1 and six times this skewness: mean and variance are those of the largest of as many normal ones."""
    beyond = mean - sixth
    return maximum(0, beyond + sixth * (beyond**2 + variance) + sixth**2 * beyond * (beyond**2 + 3 * variance) / 3)


def variance_of_largest_skewed(mean: Expr, variance: Expr, sixth: Expr) -> Expr:
    """Of the same: by the slope of the cubic at the mean of the largest normal one."""
    return (1 + sixth * (mean - sixth)) ** 4 * variance
