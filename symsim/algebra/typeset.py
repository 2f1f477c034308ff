r"""Expressions as LaTeX: what is common comes first, fractions only at the front, long sums in several lines.

SymPy's printer takes a second for a model and prints sums as they are stored; a reader wants 2bs/t (...) with the
sizes in the order the field writes them. Widths are estimated in em, so that every target (page, screen) can ask for
lines that fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache

from symsim.algebra.arranged import Arranger, Sum, Term, counts_first, less_one
from symsim.algebra.expr import Atom, Call, Expr, Symbol
from symsim.algebra.kinds import SPELT, as_named, kind_of
from symsim.algebra.operators import FUNCTIONS
from symsim.algebra.quantity import Definition
from symsim.algebra.vocabulary import ACROSS, SYMBOLS, Entry

_STAGE = {
    "first_i": (r"\delta^{(i)}_{\mathrm{first}}", "1 on the stage that looks the tokens up, else 0"),
    "loss_i": (r"\delta^{(i)}_{\mathrm{loss}}", "1 on the stage that computes the loss, else 0"),
    "last_layer_i": (r"\delta^{(i)}_{\mathrm{last}}", "1 on the stage of the final norm, else 0"),
    "embedding_i": (r"\delta^{(i)}_{\mathrm{emb}}", "1 on a stage that holds the embedding table, else 0"),
    "output_i": (r"\delta^{(i)}_{\mathrm{out}}", "1 on a stage that holds a table of the output layer, else 0"),
    "mtp_i": ("D^{(i)}", "multi-token prediction depths that stage i runs"),
    "mtp_copies_i": (r"\hat{D}^{(i)}", "multi-token prediction depths whose parameters stage i holds"),
    "received_i": (r"n^{(i)}_{\mathrm{in}}", "boundary tensors that stage i receives in the forward of a micro-batch"),
    "returned_i": (r"n^{(i)}_{\mathrm{back}}", "gradients of boundary tensors that stage i receives in the backward of a micro-batch"),
    "window_i": (r"n^{(i)}_{\mathrm{window}}", "micro-batches that stage i holds at once (of several chunks, passes), where there are as many"),
    "whole_i": (r"n^{(i)}_{\mathrm{whole}}", "those of them that keep what their backward needs"),
    "checkpoints_i": (r"n^{(i)}_{\mathrm{ckpt}}", "layer inputs that stage i keeps for full recomputation"),
}
_SIZES_OF_KINDS = {
    "d": "head dimension",
    "f": "feed-forward width",
    "g": "key/value heads",
    "w": "window of attention in tokens",
    "m_x": "tokens of an entry",
}
# Numbers of the system, and seconds of the stage with the longest tail
_SYSTEM = {
    "Phi": (r"\Phi", "FLOP/s", "peak rate of an accelerator in the strategy's precision"),
    "B_hbm": (r"B_{\mathrm{HBM}}", "byte/s", "HBM bandwidth of an accelerator"),
    "B_sm_deepep": (r"B_{\mathrm{SM,DeepEP}}", "byte/s", "what one multiprocessor moves in an exchange by DeepEP"),
    "B_sm_hybridep": (r"B_{\mathrm{SM,HybridEP}}", "byte/s", "what one multiprocessor moves in an exchange by HybridEP"),
    "B_host": (r"B_{\mathrm{host}}", "byte/s", "bandwidth of a rank's host link, one direction"),
    "B_drive": (r"B_{\mathrm{drive}}", "byte/s", "what a rank reaches of its node's drives, one direction"),
    "B_dram": (r"B_{\mathrm{dram}}", "byte/s", "bandwidth of a rank's share of the host's memory"),
    "n_sm": (r"n_{\mathrm{SM}}", "1", "multiprocessors of an accelerator"),
    "world": (r"n_{\mathrm{ranks}}", "1", "ranks"),
    "W_chip": (r"W_{\mathrm{chip}}", "W", "power of an accelerator"),
    "c_chip": (r"c_{\mathrm{chip}}", "USD/s", "price of an accelerator"),
    "t_launch": (r"t_{\mathrm{launch}}", "s", "the host's time for one kernel"),
    "t_gather": (r"t_{\mathrm{gather}}", "s", "the host's time for gathering the parameters of one module"),
    "e_dp": (r"\hat{\epsilon}^{\mathrm{dp}}", "s", "exposed data-parallel messages of the stage with the longest tail"),
    "e_offload": (r"\hat{\epsilon}^{\mathrm{host}}", "s", "host traffic that computation does not hide, of the stage with the longest tail"),
    "t_opt": (r"\hat{t}_{\mathrm{opt}}", "s", "optimizer of the stage with the longest tail"),
}
_TIERS = {
    "R": ("R", "1", "ranks that a unit of tier {} joins"),
    "B": ("B", "byte/s", "bandwidth of one rank over tier {}"),
    "C": ("C", "byte/s", "what one ring moves over tier {} at most"),
    "alpha": (r"\alpha", "s", "latency of a hop of tier {}"),
    "chi": (r"\chi", "1", "share of the multiprocessors that a message over tier {} takes from what runs beside it"),
    "lambda": (r"\lambda", "s", "latency of a call that reaches tier {}"),
}
# a reduction over stages, whose argument is of stage i
_OVER_STAGES: dict[str, Callable[..., str]] = {
    "stages_sum": lambda x: rf"\sum_{{i}} {x}",
    "stages_max": lambda x: rf"\max_{{i}} {x}",
    "stages_at": lambda x, by: rf"{x}\big|_{{i:\,{by}=\max}}",
    "stages_pair": lambda x: rf"\overline{{{x}}}",
    "stages_after": lambda x: r"\sum_{k>i} " + x.replace("(i)", "(k)"),
    "stages_before": lambda x: r"\sum_{k<i} " + x.replace("(i)", "(k)"),
}
_TALL = (r"\frac", r"\sum_{i}", r"\sum_{k>i}", r"\sum_{k<i}")  # what is higher than a line
_BRACKETS = (("(", ")"), (r"\lceil", r"\rceil"), (r"\lfloor", r"\rfloor"))
_RELATIONS = {">": ">", ">=": r"\ge"}
_BREAK_FROM = 0.5  # a line is broken at an outer + rather than an inner one if it is at least so full there


def word(text: str) -> str:
    """Text as an upright name; LaTeX's special characters cannot get through."""
    return r"\mathrm{" + re.sub(r"_*[^A-Za-z0-9_][^A-Za-z0-9]*|_", r"\\_", as_named(text)).strip("\\_") + "}"


def entry(name: str) -> Entry:
    """LaTeX, unit and meaning of a symbol that is no definition: the vocabulary's, or one made for a layer kind or a stage."""
    if name in SYMBOLS:
        return SYMBOLS[name]
    if name in ACROSS:
        of = entry(ACROSS[name])
        latex, mirror = of.latex.replace("(i)", "(j)"), "stage j = pp - 1 - i"
        # the words of an indicator name no stage
        here = of.meaning.replace("stage i", mirror) if "stage i" in of.meaning else f"{of.meaning}; of {mirror}"
        return Entry(latex, of.unit, here)
    if name in _STAGE:
        return Entry(_STAGE[name][0], "1", _STAGE[name][1])
    if name in _SYSTEM:
        return Entry(*_SYSTEM[name])
    call = re.fullmatch(r"lambda_(\d+)_([a-z0-9_]+)_(\d+)", name)
    if call:
        latex = rf"\lambda_{{{call[1]},{word(call[2])},{call[3]}}}"
        return Entry(latex, "s", f"latency of a call of {call[2]} that reaches tier {call[1]}, of {call[3]} ranks or more")
    exchange = re.fullmatch(r"eta_(\d+)_([a-z]+)_(\d+)", name)
    if exchange:
        latex = rf"\eta_{{{exchange[1]},{word(exchange[2])},{exchange[3]}}}"
        return Entry(latex, "1", f"share of tier {exchange[1]}'s bandwidth that {exchange[2]} reaches, of {exchange[3]} ranks or more")
    tier = re.fullmatch(rf"({'|'.join(_TIERS)})_(\d+)", name)
    if tier:
        latex, unit, meaning = _TIERS[tier[1]]
        return Entry(f"{latex}_{{{tier[2]}}}", unit, meaning.format(tier[2]))
    share = re.fullmatch(r"eta_(\d+)_(\w+)", name)
    if share:
        return Entry(rf"\eta_{{{share[1]},{word(share[2])}}}", "1", f"share of tier {share[1]}'s bandwidth that {share[2]} reaches")
    peak = re.fullmatch(r"Phi_(\w+)", name)
    if peak:
        return Entry(rf"\Phi_{{{word(peak[1])}}}", "FLOP/s", f"peak rate of an accelerator on {peak[1]}")
    layers = re.fullmatch(rf"L_({SPELT})(_ckpt)?(_i)?", name)
    if layers:
        kind, again, here = layers[1], bool(layers[2]), " on stage i" if layers[3] else ""
        latex = ("L^{(i)}" if here else "L") + "_{" + word(kind) + (r",\mathrm{ckpt}" if again else "") + "}"
        return Entry(
            latex, "1", f"layers of kind {kind_of(kind)}" + (" that are recomputed in full" if again else "") + (" on stage i" if here else "")
        )
    copies = re.fullmatch(rf"shared_(\d+)_({SPELT})_i", name)
    if copies:
        latex = rf"n^{{(i)}}_{{\mathrm{{shared}},{copies[1]},{word(copies[2])}}}"
        return Entry(latex, "1", f"weights of layers of kind {kind_of(copies[2])} on stage i that {copies[1]} stages have")
    size_of = re.fullmatch(rf"([dfgw]|m_x)_({SPELT})", name)
    if size_of:
        letter, *below = size_of[1].split("_")
        return Entry(
            f"{letter}_{{{','.join([*below, word(size_of[2])])}}}", "1", f"{_SIZES_OF_KINDS[size_of[1]]} of layers of kind {kind_of(size_of[2])}"
        )
    if len(name) == 1:
        return Entry(name, "1", name)
    head, _, rest = name.partition("_")
    return Entry(f"{head}_{{{word(rest)}}}" if rest and len(head) == 1 else word(name), "1", name)


def symbol_latex(name: str, names: Mapping[str, str] | None = None) -> str:
    """names: LaTeX of definitions, by symbol."""
    return (names or {}).get(name) or entry(name).latex


class Names(dict[str, str]):
    """LaTeX of definitions, by symbol, each after what it stands on; with them what was printed under these names, which is asked for again."""

    def __init__(self, names: Mapping[str, str]):
        super().__init__(names)
        self.order = {name: place for place, name in enumerate(names)}
        self.printers = {fractions: _Printer(Arranger(self.order), self, fractions) for fractions in (False, True)}

    def __setitem__(self, name: str, latex: str) -> None:
        super().__setitem__(name, latex)
        self.order.setdefault(name, len(self.order))


@dataclass(frozen=True)
class _Printer:
    arranger: Arranger
    names: Mapping[str, str]
    fractions: bool
    known: dict[Expr, tuple[Sum, str]] = field(default_factory=dict)

    def arranged(self, expression: Expr) -> Sum:
        return self._read(expression)[0]

    def whole(self, expression: Expr) -> str:
        return self._read(expression)[1]

    def _read(self, expression: Expr) -> tuple[Sum, str]:
        if expression not in self.known:
            terms = self.arranger.arranged(expression.terms) if expression.terms else ()
            self.known[expression] = terms, self.sum(terms) if terms else "0"
        return self.known[expression]

    def atom(self, atom: Atom, power: int) -> str:
        if isinstance(atom, Symbol):
            text = symbol_latex(atom.name, self.names)
        elif guard := self.arranger.guard(atom):
            # a bracket is 0 or 1: so is each of its powers
            return _around(f"{self.whole(guard.left)} {_RELATIONS[guard.relation]} {self.whole(guard.right)}", "[", "]")
        else:
            inside = [self.whole(a) for a in atom.arguments]
            if atom.function in _OVER_STAGES:
                text = _OVER_STAGES[atom.function](*(_around(x) if len(self.arranged(a)) > 1 else x for a, x in zip(atom.arguments, inside)))
            else:
                text = _called(FUNCTIONS[atom.function].latex, ", ".join(inside))
        if power == 1:
            return text
        return f"{text}^{{{power}}}" if "^" not in text else rf"\bigl({text}\bigr)^{{{power}}}"

    def front(self, term: Term) -> tuple[str, str]:
        """Numerator and denominator of a term, without sign and without its inner sums."""
        top, bottom = [f for f in term.monomial if f[1] > 0], [(a, -p) for a, p in term.monomial if p < 0]
        over = [grouped(term.coefficient.denominator)] if term.coefficient.denominator != 1 else []
        under = over + [self.atom(*f) for f in bottom]
        above = [self.atom(*f) for f in top]
        whole = abs(term.coefficient.numerator)
        if whole != 1 or not (above or term.inner and not under):
            above.insert(0, grouped(whole))
        alone = len(bottom) == 1 and not over and isinstance(bottom[0][0], Call) and bottom[0][0].function == "sum" and bottom[0][1] == 1
        return _product(above), (_bare(under[0]) if alone and self.fractions else _product(under))

    def shares(self, term: Term) -> tuple[Term, list[str]]:
        """A term without its (x - 1)/x, and these as fractions of their own."""
        made, monomial, inner = [], dict(term.monomial), list(term.inner)
        for terms in term.inner if self.fractions else ():
            over = less_one(terms)
            if over and all(monomial.get(a, 0) < 0 for a, _ in over):
                made.append(rf"\frac{{{self.sum(terms)}}}{{{_product([self.atom(a, 1) for a, _ in over])}}}")
                monomial |= {a: monomial[a] + 1 for a, _ in over}
                inner.remove(terms)
        left = Term(term.coefficient, tuple((a, p) for a, p in monomial.items() if p), tuple(inner))
        return left, made

    def head(self, term: Term) -> str:
        """A term without sign up to its last inner sum, the others in parentheses."""
        left, shares = self.shares(term)
        top, bottom = self.front(left)
        sums = "".join(_around(self.sum(inner)) for inner in left.inner[:-1])
        if bottom:
            return rf"\frac{{{top}}}{{{bottom}}}" + "".join(shares) + sums
        return ("" if top == "1" and (shares or left.inner) else top) + "".join(shares) + sums

    def last(self, term: Term) -> Sum:
        left, _ = self.shares(term)
        return () if not left.inner or counts_first(term) else left.inner[-1]

    def counted(self, term: Term) -> str:
        """How often, then what: 2(m - 1) t_slow."""
        atoms, _ = self.front(replace(term, inner=(), coefficient=Fraction(1)))
        number = grouped(abs(term.coefficient.numerator)) if abs(term.coefficient.numerator) != 1 else ""
        if term.coefficient.denominator != 1:
            number = rf"\frac{{{number or '1'}}}{{{grouped(term.coefficient.denominator)}}}"
        sums = "".join(_around(self.sum(inner)) for inner in term.inner)
        return number + sums + r"\," + atoms

    def term(self, term: Term) -> str:
        if self.fractions:
            inner = self.last(term)
            top, bottom = self.front(term)
            if len(term.inner) == 1 and inner and top == "1" and bottom:
                whole = self.sum(inner)
                if bottom.replace(r"\,", "").isdigit() or r"\frac" not in whole:
                    return rf"\frac{{{whole}}}{{{bottom}}}"
            return self.counted(term) if counts_first(term) else self.head(term) + (_around(self.sum(inner)) if inner else "")
        top, bottom = self.front(term)
        sums = "".join(f"({self.sum(part)})" for part in term.inner)
        if not bottom:
            return ("" if top == "1" and sums else top) + sums
        several = sum(p < 0 for _, p in term.monomial) + (term.coefficient.denominator != 1) > 1
        return f"{top if top != '1' or not sums else ''}{sums} / " + (f"({bottom})" if several else bottom)

    def sum(self, terms: Sequence[Term]) -> str:
        return "".join(
            ("-" if n == 0 else " - ") * (t.coefficient < 0) + " + " * (t.coefficient > 0 and n > 0) + self.term(t) for n, t in enumerate(terms)
        )

    def pieces(self, terms: Sequence[Term], depth: int, limit: float) -> list[tuple[str, int]]:
        """(text, depth of the + before it): where a long sum may be broken."""
        made: list[tuple[str, int]] = []
        for n, term in enumerate(terms):
            sign = "-" if term.coefficient < 0 else "+" if n else ""
            # a term that is broken has what it multiplies in front, however it is read in one line
            whole, inner_sums = self.term(term), self.shares(term)[0].inner
            last = inner_sums[-1] if inner_sums else ()
            if not last or width(whole) <= limit / 2:
                made.append((f"{sign} {whole}".strip(), depth))
                continue
            inner = self.pieces(last, depth + 1, limit)
            size = bracket_size("".join(text for text, _ in inner))
            inner[0] = (f"{sign} {self.head(term)}".strip() + rf"\{size}l(" + inner[0][0], depth)
            inner[-1] = (inner[-1][0] + rf"\{size}r)", inner[-1][1])
            made += inner
        return made


def _around(text: str, left: str = "(", right: str = ")") -> str:
    """In brackets, as high as a fraction or a sum inside."""
    return rf"\left{left}{text}\right{right}" if _tall(text) else left + text + right


def _bare(text: str) -> str:
    """Without the brackets that `_around` put."""
    return text.removeprefix(r"\left")[1:-1].removesuffix(r"\right")


def _tall(text: str) -> bool:
    return any(part in text for part in _TALL)


def bracket_size(text: str) -> str:
    """LaTeX's word for the size of brackets around what is broken over lines, which none can stretch over."""
    return "bigg" if _tall(text) else "big"


def _called(latex: str, inside: str) -> str:
    """A function's LaTeX of its arguments."""
    if _tall(inside):
        for left, right in _BRACKETS:
            latex = latex.replace(left, rf"\left{left}").replace(right, rf"\right{right}")
    return latex.replace("{}", inside)


_HIGH = 1 << 20
_WORD = re.compile(r"\\mathrm\{[A-Za-z]{2,}\}")
_WORDS = re.compile(r"(?<![_^{])\\mathrm\{[A-Za-z]{2,}\}$")


def _product(factors: Sequence[str]) -> str:
    """Names of several letters get air around them, and words a dot between them."""
    text = ""
    for factor in factors:
        if _WORD.fullmatch(factor) and _WORDS.search(text):
            text += rf" \cdot {factor}"
            continue
        text += (r"\," if "mathrm" in factor or "mathrm" in text[-24:] else " " if re.search(r"\\[A-Za-z]+$", text) else "") * bool(text) + factor
    return text


def grouped(number: int) -> str:
    r"""An integer in LaTeX with thin spaces between thousands: 12\,345; a high power of two as one: 2^{30}."""
    if number >= _HIGH and number & number - 1 == 0:
        return f"2^{{{number.bit_length() - 1}}}"
    return f"{number:,}".replace(",", r"\,")


def _printer(names: Mapping[str, str] | None, fractions: bool, sequence: Sequence[str] = ()) -> _Printer:
    if isinstance(names, Names) and not sequence:
        return names.printers[fractions]
    return _Printer(Arranger({n: i for i, n in enumerate(names or {})}, {n: i for i, n in enumerate(sequence)}), names or {}, fractions)


def latex(expression: Expr, names: Mapping[str, str] | None = None, *, fractions: bool = True, sequence: Sequence[str] = ()) -> str:
    """One line of LaTeX. fractions=False: divisions by a slash, for table cells; sequence: symbols in the order in which a product has them."""
    return _printer(names, fractions, sequence).whole(expression)


def is_sum(expression: Expr) -> bool:
    """Whether `latex` prints terms with + between them, which a factor beside them would need parentheses for."""
    return len(expression.terms) > 1 and len(Arranger({}).arranged(expression.terms)) > 1


def lines(
    expression: Expr, names: Mapping[str, str] | None, limit: float, first: float | None = None, ending: str = "", sequence: Sequence[str] = ()
) -> list[str]:
    r"""LaTeX in lines of at most `limit` em (the first at most `first`), broken at + and -; `ending` follows the last term.
    Only a single term that is longer than a line makes a longer one."""
    printer = _printer(names, True, sequence)
    whole = printer.whole(expression) + ending
    first = limit if first is None else first
    if width(whole) <= first:
        return [whole]
    pieces = printer.pieces(printer.arranged(expression), 0, limit) if expression.terms else [("0", 0)]
    pieces += [(ending, 0)] if ending else []
    made: list[str] = []
    while pieces:
        room = first if not made else limit - 2
        take, used = 1, width(pieces[0][0])
        while take < len(pieces) and used + width(pieces[take][0]) <= room:
            used += width(pieces[take][0])
            take += 1
        if take < len(pieces):
            take = _best_break(pieces, take, room)
        made.append((r"\quad " * (pieces[0][1] > 0) if made else "") + " ".join(p.strip() for p, _ in pieces[:take]))
        pieces = pieces[take:]
    return made


def _best_break(pieces: Sequence[tuple[str, int]], furthest: int, room: float) -> int:
    """The last of the outermost places to break a line that leave it well filled."""
    used, best = 0.0, furthest
    for count in range(1, furthest):
        used += width(pieces[count - 1][0])
        if used >= _BREAK_FROM * room and pieces[count][1] <= pieces[best][1] - 1:
            best = count
        elif best != furthest and used >= _BREAK_FROM * room and pieces[count][1] == pieces[best][1]:
            best = count
    return best


def names_of(definitions: Iterable[Definition]) -> Names:
    """LaTeX by symbol; one that has none is set as its own name."""
    return Names({d.symbol: re.sub(r"_(\\mathrm\{[^{}]*\})", r"_{\1}", d.latex) or symbol_latex(d.symbol) for d in definitions})


def definition_latex(definition: Definition, names: Mapping[str, str] | None = None) -> str:
    """`symbol = expression`."""
    return f"{definition.latex or symbol_latex(definition.symbol, names)} = {latex(definition.expr, names)}"


_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[{}^_&]|[0-9]|[A-Za-z]|\s+|.", re.DOTALL)
_WIDE = {
    "+": 1.3,
    "-": 1.3,
    "=": 1.4,
    r"\to": 1.6,
    r"\cdot": 0.8,
    r"\times": 1.3,
    r"\approx": 1.4,
    "(": 0.4,
    ")": 0.4,
    r"\bigl": 0.1,
    r"\bigr": 0.1,
    r"\biggl": 0.3,
    r"\biggr": 0.3,
    r"\left": 0.25,
    r"\right": 0.25,
    ",": 0.45,
    "/": 0.5,
    r"\,": 0.17,
    r"\quad": 1.0,
    r"\max": 1.9,
    r"\min": 1.8,
    r"\log": 1.5,
    r"\lceil": 0.45,
    r"\rceil": 0.45,
    r"\lfloor": 0.45,
    r"\rfloor": 0.45,
    r"\sum": 1.1,
    r"\hat": 0.0,
    r"\displaystyle": 0.0,
}
# em of Computer Modern's letters, a to z and A to Z
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SLANTED_EM = (
    ".529 .429 .433 .520 .466 .490 .477 .576 .345 .412 .521 .298 .878 .600 .485 .503 .446 .451 .469 .361 .572 .485 .716 .572 .490 .465 "
    ".750 .759 .715 .828 .738 .643 .786 .831 .440 .555 .849 .681 .970 .803 .763 .642 .791 .759 .613 .584 .683 .583 .944 .828 .581 .683"
)
_UPRIGHT_EM = (
    ".500 .556 .444 .556 .444 .306 .500 .556 .278 .306 .528 .278 .833 .556 .500 .556 .528 .392 .394 .389 .556 .528 .722 .528 .528 .444 "
    ".750 .708 .722 .764 .681 .653 .785 .750 .361 .514 .778 .625 .917 .750 .778 .681 .778 .736 .556 .722 .750 .750 1.03 .750 .750 .611"
)
_SLANTED, _UPRIGHT = (dict(zip(_ALPHABET, map(float, ems.split()))) for ems in (_SLANTED_EM, _UPRIGHT_EM))
_SCRIPT = 0.72
_BREAKING = frozenset(("+", "-", "=", "<", ">", r"\to", r"\cdot", r"\times", r"\approx", r"\ge", r"\le"))


@lru_cache(maxsize=4096)
def width(text: str) -> float:
    """Estimated width in em of LaTeX that this module makes."""
    total, _ = _width(_TOKEN.findall(text), 0, False, False)
    return total


@lru_cache(maxsize=4096)
def pieces(text: str) -> tuple[float, ...]:
    """Estimated widths in em of the parts of such LaTeX that stand on one line each: it is broken behind its operators, but in no group."""
    parts, depth = [""], 0
    for token in _TOKEN.findall(text):
        depth += (token in ("{", r"\left")) - (token in ("}", r"\right"))
        parts[-1] += token
        if not depth and token in _BREAKING:
            parts.append("")
    return tuple(map(width, parts))


def _width(tokens: Sequence[str], at: int, one: bool, upright: bool) -> tuple[float, int]:
    """Width of the tokens up to the closing brace (or of one argument), and where it ends."""
    total, script_of_two = 0.0, 0.0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token == "}":
            break
        if token == "{":
            inner, at = _width(tokens, at, False, upright)
            total += inner
        elif token in "^_":
            inner, at = _width(tokens, at, True, upright)
            # a subscript and a superscript of one letter stand above each other
            total += max(0.0, inner * _SCRIPT - script_of_two)
            script_of_two = max(script_of_two, inner * _SCRIPT)
            continue
        elif token in (r"\mathrm", r"\text"):
            inner, at = _width(tokens, at, True, True)
            total += inner
        elif token in (r"\frac", r"\tfrac"):
            above, at = _width(tokens, at, True, upright)
            below, at = _width(tokens, at, True, upright)
            total += max(above, below) + 0.25
        elif token.isspace() or token == "&":
            continue
        else:
            letters = _UPRIGHT if upright else _SLANTED
            total += _WIDE.get(token, letters.get(token, 0.5 if token.isdigit() else 0.7 if len(token) == 1 else 0.6))
        script_of_two = 0.0
        if one:
            break
    return total, at
