"""A program: definitions lowered to binary operations over the axes of a grid, each done once over its own axes.

Every value knows the axes that it depends on. What depends on none is a number (exact while it can be); what depends on few
points is computed at once, as an array over its own axes; what is left is a graph of operations for a kernel
(`plan`, `numpy_kernel`, `c_kernel`). While it is built a sum or product is grouped so that operands over few points
meet first, a factor that several terms share is taken out of them, and an addend that several arguments of a maximum
share is taken out of it: after that few operations depend on all axes.

ceil and floor keep a true division below them, and are guarded: the argument of a ceil is lowered by 2^-49 of its size.
Where the exact argument is a fraction p/q with p below 2^49, and rounding moved it by less than that, the result is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np

from symsim.algebra.expr import Call, Expr
from symsim.algebra.operators import EXACT, OPERATORS, Number
from symsim.algebra.quantity import Definition
from symsim.program.value import Value, added, numpy_operation, of_largest

# values over this many points or fewer are computed while the program is built
SMALL = 1 << 15
# where variants share a program: what each of them has would be an array over all points
SHARED_SMALL = 1 << 13
# larger arrays are not searched for axes along which nothing changes
_WORTH_REDUCING = 1 << 12

# a term and its coefficient, or a factor and its power
Part = tuple[Value, Number]


def _plain(x: Number) -> Number:
    """A whole number as an integer; what no float can hold as infinity, which it is to every array."""
    if isinstance(x, float):
        return x
    if x.numerator.bit_length() > 1000 and x.numerator.bit_length() - x.denominator.bit_length() > 1000:
        return math.copysign(math.inf, x.numerator >> x.numerator.bit_length() - 2)
    return x.numerator if type(x) is Fraction and x.denominator == 1 else x


@dataclass
class Program:
    """Builds values over axes of the given sizes.

    sizes: points along each axis; an axis is a bit of every mask. small: values over so many points or fewer are
    computed at once (0: only numbers are).
    """

    sizes: Sequence[int]
    small: int = SMALL
    values: list[Value] = field(default_factory=list)
    _interned: dict[Any, Value] = field(default_factory=dict)
    _points: dict[int, int] = field(default_factory=dict)
    # what an expression came to, by the values of its symbols: derivations of one model share most of theirs
    lowered: dict[Any, Value] = field(default_factory=dict)
    # of a definition its expression with names for its reductions over stages, and whether it counts something; the reductions by their names;
    # and whether it is a stage's
    parts: dict[int, tuple[tuple[Expr, bool], dict[str, Call], bool, Definition]] = field(default_factory=dict)
    # of an expression its number and its symbols; of this object the same, which keeps it
    symbols_of: dict[Expr, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    numbered: dict[int, tuple[int, tuple[str, ...], Expr]] = field(default_factory=dict)
    # of arrays, by where they are, their values
    arrays: dict[int, tuple[Value, np.ndarray]] = field(default_factory=dict)
    # of definitions of a stage their numbers (`scope.Outline`), and what these come to, by the stage's symbols and over stages
    outlines: dict[Any, int] = field(default_factory=dict)
    outlined: dict[Any, Value] = field(default_factory=dict)
    # what else follows from the axes alone, by what it follows from
    known: dict[Any, Any] = field(default_factory=dict)

    # leaves ------------------------------------------------------------------------------------------------------------

    def number(self, x: Number | bool) -> Value:
        x = x if isinstance(x, bool) else _plain(x)
        return self._once(("number", type(x) is float, type(x) is bool, x), "number", (), 0, x)

    def array(self, data: np.ndarray) -> Value:
        """An array with one dimension an axis; dimensions of length 1 are not depended on. Axes along which nothing changes are dropped."""
        found = self._reduced(data if data.dtype == bool else data.astype(np.float64))
        if isinstance(found, Value):
            return found
        mask, data = found
        return self._once(("array", mask, data.dtype.kind, data.tobytes()), "array", (), mask, data)

    def of_array(self, data: np.ndarray) -> Value:
        """As `array`, of an array that is asked for often and not written to."""
        known = self.arrays.get(id(data))
        if known is None:
            known = self.arrays[id(data)] = (self.array(data), data)
        return known[0]

    def _reduced(self, data: np.ndarray) -> "Value | tuple[int, np.ndarray]":
        """An array without the axes along which nothing changes, and its mask; the number it is when nothing changes at all."""
        mask, stride = 0, data.size
        small = stride <= _WORTH_REDUCING
        for axis, length in enumerate(data.shape):
            if length > 1:
                # most often it shows in the corners
                stride //= length
                if not small or data.item(0) != data.item((length - 1) * stride):
                    mask |= 1 << axis
                    continue
                first = data[(slice(None),) * axis + (slice(0, 1),)]
                if (data == first).all():
                    data = first
                else:
                    mask |= 1 << axis
        if mask:
            return mask, data
        x = data.reshape(-1)[0].item()
        return self.number(int(x) if isinstance(x, float) and x.is_integer() and abs(x) < 2**53 else x)

    def input(self, name: str, axis: int) -> Value:
        """A number that is not known until the program runs, which stands for an axis of its own."""
        return self._once(("input", name), "input", (), 1 << axis, None, name)

    def kept(self, name: str, value: Value) -> Value:
        """A value by a name of its own, into which no sum, product or maximum reaches; a number is itself."""
        return value if value.known else self._once(("kept", name), "kept", (value,), value.mask, None, name)

    def points(self, mask: int) -> int:
        found = self._points.get(mask)
        if found is None:
            found, left = 1, mask
            while left:
                lowest = left & -left
                found *= self.sizes[lowest.bit_length() - 1]
                left ^= lowest
            self._points[mask] = found
        return found

    def _once(self, key: Any, op: str, args: tuple[Value, ...], mask: int, data: Any = None, name: str = "") -> Value:
        found = self._interned.get(key)
        if found is None:
            found = Value(len(self.values), op, args, mask, data, name=name)
            self.values.append(found)
            self._interned[key] = found
        return found

    def _made(self, key: Any, data: np.ndarray) -> Value:
        """What several operations came to at once, of which nothing on the way is kept."""
        reduced = self._reduced(data)
        found = reduced if isinstance(reduced, Value) else self._once(key, "array", (), *reduced)
        self._interned[key] = found
        return found

    def number_of(self, expression: Expr) -> tuple[int, tuple[str, ...], Expr]:
        """Of an expression its number, the same for equal ones, and its symbols."""
        own = self.numbered.get(id(expression))
        if own is not None:
            return own
        known = self.symbols_of.get(expression)
        if known is None:
            known = self.symbols_of[expression] = (len(self.symbols_of), tuple(sorted(expression.symbols())))
        found = self.numbered[id(expression)] = (*known, expression)
        return found

    # operations --------------------------------------------------------------------------------------------------------

    def apply(self, op: str, *args: Value) -> Value:
        """One operation on values; done at once where its result is small."""
        if OPERATORS[op].commutes and args[0].id > args[1].id:
            args = (args[1], args[0])
        key = (op, *(a.id for a in args))
        found = self._interned.get(key)
        if found is not None:
            return found
        mask = 0
        for a in args:
            mask |= a.mask
        if not mask:
            if all(a.known for a in args):
                found = self.number(EXACT[op](*(a.data for a in args)))
        elif self.points(mask) <= self.small and all(a.known for a in args):
            with np.errstate(all="ignore"):
                data = numpy_operation(op, *(a.data for a in args))
            reduced = self._reduced(data)
            if isinstance(reduced, Value):
                found = reduced
            else:
                return self._once(key, "array", (), *reduced)
        if found is None:
            return self._once(key, op, args, mask)
        self._interned[key] = found
        return found

    def scaled(self, value: Value, by: Number) -> Value:
        return value if by == 1 else self.apply("mul", self.number(by), value) if value.known else self.product(by, [(value, 1)])

    def total(self, terms: Iterable[tuple[Value, Number]]) -> Value:
        """The sum of values times coefficients: those over few points first, shared factors taken out."""
        constant: Number = 0
        weights: dict[int, list[Any]] = {}
        stack = list(terms)[::-1]
        while stack:
            value, by = stack.pop()
            if not value.mask and value.known:
                constant = _plain(constant + value.data * by)
            elif value.terms is not None and not value.known:
                stack.extend((v, c * by) for v, c in reversed(value.terms))
            elif value.id in weights:
                weights[value.id][1] += by
            else:
                weights[value.id] = [value, by]
        found = [(v, _plain(c)) for v, c in weights.values() if c]
        small = [(v, c) for v, c in found if v.known]
        large = [(v, c) for v, c in found if not v.known]
        parts = self._by_mask(small)
        if constant:
            if parts:
                at = min(range(len(parts)), key=lambda k: self.points(parts[k][0].mask))
                parts[at] = (self.apply("add", self.scaled(*parts[at]), self.number(constant)), 1)
            else:
                parts.append((self.number(constant), 1))
        flat = (*parts, *large)
        result = self._merged(self._factored(list(flat)))
        if not result.known and len(flat) > 1:
            result.terms = result.terms or flat
        return result

    def _by_mask(self, terms: list[tuple[Value, Number]]) -> list[tuple[Value, Number]]:
        """Arrays over the same axes added up."""
        groups: dict[int, list[tuple[Value, Number]]] = {}
        for value, by in terms:
            groups.setdefault(value.mask, []).append((value, by))
        made = []
        for group in groups.values():
            if len(group) == 1:
                made.append(group[0])
                continue
            made.append((self._added(group), 1))
        return made

    def _added(self, group: Sequence[tuple[Value, Number]]) -> Value:
        """The sum of known values over the same axes, one after the other; at once where it is small, so that nothing on the way is kept."""
        mask = group[0][0].mask
        if len(group) > 2 and mask and self.points(mask) <= self.small:
            key = ("sum", *((value.id, by) for value, by in group))
            found = self._interned.get(key)
            return found if found is not None else self._made(key, added([(value.data, by) for value, by in group]))
        first = self.scaled(*group[0])
        for value, by in group[1:]:
            first = self.apply("sub", first, self.scaled(value, -by)) if by < 0 else self.apply("add", first, self.scaled(value, by))
        return first

    def _factored(self, terms: list[tuple[Value, Number]]) -> list[tuple[Value, Number]]:
        """Terms in which a factor over many points that several products share stands once, times the sum of the rest."""
        while True:
            seen: dict[int, list[int]] = {}
            by_id: dict[int, Value] = {}
            for k, (value, _) in enumerate(terms):
                for factor, power in value.factors or ((value, 1),) if not value.known else ((value, 1),):
                    if power == 1 and factor.mask:
                        if k not in seen.setdefault(factor.id, []):
                            seen[factor.id].append(k)
                        by_id[factor.id] = factor
            shared = [(len(at), self.points(by_id[f].mask), f) for f, at in seen.items() if len(at) > 1 and any(not terms[k][0].known for k in at)]
            if not shared:
                return terms
            _, _, best = max(shared)
            factor, at = by_id[best], seen[best]
            rest = []
            for k in at:
                value, by = terms[k]
                left = list(value.factors or ((value, 1),))
                left.remove((factor, 1))
                rest.append((self.product(by, left), 1))
            # the terms that are left are sums of fewer factors, so this ends
            product = self.product(1, [(factor, 1), (self.total(rest), 1)])
            terms = [t for k, t in enumerate(terms) if k not in at] + [(product, 1)]

    def _merged(self, terms: Sequence[Part]) -> Value:
        """Binary additions, the pair over the fewest points first."""

        def added(first: Part, second: Part) -> Part:
            (a, x), (b, y) = (second, first) if first[1] < 0 < second[1] else (first, second)
            if x < 0 and y < 0:
                return self.apply("add", self.scaled(a, -x), self.scaled(b, -y)), -1
            if y < 0:
                return self.apply("sub", self.scaled(a, x), self.scaled(b, -y)), 1
            return self.apply("add", self.scaled(a, x), self.scaled(b, y)), 1

        return self.scaled(*self._joined(terms, added)) if terms else self.number(0)

    def _joined(self, parts: Sequence[Part], join: Callable[[Part, Part], Part]) -> Part:
        """One of many, joined in pairs: the pair over the fewest points first, of such the one of the larger parts, then the first."""
        if len(parts) == 2:
            return join(*parts)
        left: dict[int, Part] = {}
        # of those that are left the masks, and over how many points they are
        sizes: dict[int, tuple[int, int]] = {}
        pairs: list[tuple[int, int, int, int]] = []
        position, known = count(), self._points

        def put(part: Part) -> None:
            own, mask = next(position), part[0].mask
            many = self.points(mask)
            for k, (with_it, points) in sizes.items():
                both = with_it | mask
                heappush(pairs, (known.get(both) or self.points(both), -points if points < many else -many, k, own))
            left[own], sizes[own] = part, (mask, many)

        for part in parts:
            put(part)
        while len(left) > 1:
            *_, i, j = heappop(pairs)
            if i in left and j in left:
                del sizes[i], sizes[j]
                put(join(left.pop(i), left.pop(j)))
        (found,) = left.values()
        return found

    def product(self, by: Number, factors: Iterable[tuple[Value, int]], *, exact: bool = False) -> Value:
        """A number times values to powers 1 or -1 (repeat a factor for more): those over few points first.

        exact: all divisors are multiplied up and divide once, so that a whole number that is a quotient comes out whole.
        """
        top: list[Value] = []
        bottom: list[Value] = []
        for value, power in factors:
            if not value.mask and value.known:
                by = _plain(by * value.data if power > 0 else EXACT["div"](by, value.data))
            elif value.factors is not None and not value.known:
                for inner, own in value.factors:
                    (top if own * power > 0 else bottom).append(inner)
            else:
                (top if power > 0 else bottom).append(value)
        for value in [b for b in bottom if b in top]:
            top.remove(value)
            bottom.remove(value)
        by = _plain(by)
        if not by:
            return self.number(0)
        if not top and not bottom:
            return self.number(by)
        if by != 1 and not exact:
            by = self._absorbed(by, top, bottom)
        whole = exact and (bool(bottom) or type(by) is Fraction)
        if by != 1 and not whole and any(not v.known for v in (*top, *bottom)):
            # kept apart, so that sums and products still see what it multiplies
            inner = self.product(1, [*((v, 1) for v in top), *((v, -1) for v in bottom)])
            result = self.apply("mul", self.number(by), inner)
            result.terms = ((inner, by),)
            return result
        numerator, denominator = (by.numerator, by.denominator) if type(by) is Fraction else (by, 1)
        if exact or not bottom:
            below = self._multiplied(bottom, denominator)
            above = self._multiplied(top, numerator)
            result = above if not below.mask and below.data == 1 else self.apply("div", above, below)
        else:
            result = self._divided(top, bottom, by)
        if by == 1 and not result.known and len(top) + len(bottom) > 1:
            result.factors = result.factors or (*((v, 1) for v in top), *((v, -1) for v in bottom))
        return result

    def _absorbed(self, by: Number, top: list[Value], bottom: list[Value]) -> Number:
        """Multiply a coefficient into an array where there is one; what is left of it."""
        known = [k for k, v in enumerate(top) if v.known]
        if known:
            k = min(known, key=lambda k: self.points(top[k].mask))
            top[k] = self.apply("mul", self.number(by), top[k])
            return 1
        known = [k for k, v in enumerate(bottom) if v.known]
        if known:
            k = min(known, key=lambda k: self.points(bottom[k].mask))
            top.append(self.apply("div", self.number(by), bottom.pop(k)))
            return 1
        return by

    def _multiplied(self, values: list[Value], by: Number) -> Value:
        values = sorted(values, key=lambda v: self.points(v.mask))
        if not values:
            return self.number(by)
        if by != 1:
            values[0] = self.apply("mul", self.number(by), values[0])
        return self._joined([(v, 1) for v in values], lambda a, b: (self.apply("mul", a[0], b[0]), 1))[0]

    def _divided(self, top: list[Value], bottom: list[Value], by: Number) -> Value:
        """Quotients of values over few points are taken first."""
        parts: list[Part] = [*((v, 1) for v in top), *((v, -1) for v in bottom)]
        parts.sort(key=lambda part: self.points(part[0].mask))
        first, power = parts[0]
        if by != 1 or power < 0:
            parts[0] = (self.apply("mul" if power > 0 else "div", self.number(by), first), 1)

        def divided(first: Part, second: Part) -> Part:
            (a, x), (b, y) = (second, first) if first[1] < 0 < second[1] else (first, second)
            return (self.apply("mul", a, b), x) if x == y else (self.apply("div", a, b), 1)

        value, power = self._joined(parts, divided)
        return value if power > 0 else self.apply("div", self.number(1), value)

    def extreme(self, op: str, values: Iterable[Value]) -> Value:
        """max or min: an addend that several arguments share is added once, to the extreme of what is left of them."""
        args = list(dict.fromkeys(values))
        known = [v for v in args if v.known]
        rest = [v for v in args if not v.known]
        known = self._extremes_by_mask(op, known)
        if len(rest) > 1:
            return self._shared_addends(op, known, rest)
        return self._extreme_merged(op, [*known, *rest])

    def _extremes_by_mask(self, op: str, values: list[Value]) -> list[Value]:
        groups: dict[int, Value] = {}
        for value in values:
            groups[value.mask] = value if value.mask not in groups else self.apply(op, groups[value.mask], value)
        return list(groups.values())

    def _shared_addends(self, op: str, known: list[Value], rest: list[Value]) -> Value:
        sums = {v.id: dict((t.id, (t, c)) for t, c in (v.terms or ((v, 1),))) for v in rest}
        seen: dict[tuple[int, Number], list[Value]] = {}
        for value in rest:
            for term, by in sums[value.id].values():
                if not term.known:
                    seen.setdefault((term.id, by), []).append(value)
        shared = [(len(at), self.points(sums[at[0].id][key[0]][0].mask), key) for key, at in seen.items() if len(at) > 1]
        if not shared:
            return self._extreme_merged(op, [*known, *rest])
        # the most shared, then the one over the most points; ties go to the first made
        _, _, (term_id, by) = max(shared, key=lambda s: (s[0], s[1], -s[2][0]))
        members = seen[term_id, by]
        term = sums[members[0].id][term_id][0]
        left = [self.total([t for t in sums[v.id].values() if t[0].id != term_id]) for v in members]
        common = self.total([(term, by), (self.extreme(op, left), 1)])
        return self.extreme(op, [*known, *(v for v in rest if v not in members), common])

    def _extreme_merged(self, op: str, values: list[Value]) -> Value:
        values = self._extremes_by_mask(op, [v for v in values if v.known]) + [v for v in values if not v.known]
        return self._joined([(v, 1) for v in values], lambda a, b: (self.apply(op, a[0], b[0]), 1))[0]

    def of_largest(self, pairs: Sequence[tuple[Value, Value]]) -> Value:
        """Of (value, key) pairs the value of the largest key, the first of equal ones."""
        mask = 0
        for value, key in pairs:
            mask |= value.mask | key.mask
        if len(pairs) > 2 and mask and self.points(mask) <= self.small and all(value.known and key.known for value, key in pairs):
            own = ("largest", *((value.id, key.id) for value, key in pairs))
            known = self._interned.get(own)
            return known if known is not None else self._made(own, of_largest([(value.data, key.data) for value, key in pairs]))
        found, most = pairs[0]
        for value, key in pairs[1:]:
            found = self.where(self.apply("lt", most, key), value, found)
            most = self.apply("max", most, key)
        return found

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        if not condition.mask and condition.known:
            return yes if condition.data else no
        return yes if yes is no else self.apply("where", condition, yes, no)


def restricted(values: Sequence[Value], chosen: Sequence[np.ndarray], small: int = SMALL) -> tuple["Program", list[Value]]:
    """Values over a part of a program's points, in a program of their own: `chosen` positions along every axis."""
    program = Program([len(c) for c in chosen], small)
    made: dict[int, Value] = {}

    def remade(value: Value) -> Value:
        found = made.get(value.id)
        if found is None:
            if isinstance(value.data, np.ndarray):
                data = value.data
                for axis, positions in enumerate(chosen):
                    if data.shape[axis] > 1 and len(positions) < data.shape[axis]:
                        data = np.take(data, positions, axis=axis)
                found = program.array(data)
            elif value.known:
                found = program.number(value.data)
            else:
                found = program.apply(value.op, *(made[a.id] for a in value.args))
            made[value.id] = found
        return found

    stack, seen, order = list(values), set(), []
    while stack:
        value = stack.pop()
        if value.id not in seen:
            seen.add(value.id)
            order.append(value)
            stack.extend(value.args)
    for value in sorted(order, key=lambda v: v.id):
        remade(value)
    return program, [made[v.id] for v in values]
