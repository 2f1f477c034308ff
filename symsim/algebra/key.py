"""What a definition is of, in fields; and how that is spelt as a symbol, which nothing reads back.

    Key("F", "block", block="dense", operation="attention.core")     F_dense_attention_core
    Key("e", "stage", phase="forward", axis="tp")                    e_f_tp_stage
    Key("M_at", "stage", phase="backward", block="moe", again=True)  M_at_backward_moe_ckpt

Definitions are found by these fields (`Derivation.of`). `_LAYOUTS` is the one place that knows how their names are written.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from symsim.algebra.expr import Expr, symbol

Scope = Literal["sizes", "network", "block", "model", "pipeline", "stage", "step"]


class Key(NamedTuple):
    """What a definition is of.

    quantity: the letter or word of the vocabulary (F, N, M_at, t). scope: what it is of one of; the model where nothing is said.
    block: a layer kind as `spelt`, embedding, head or mtp; again: of the block as it is recomputed in full. module, operation,
    tensor (a weight, or what is kept): of the block's one of these; of the network, operation is the collective. phase: forward,
    backward, inputs, weights, again, or a backward kernel's own (dgrad, wgrad). axis: the ranks that a message goes over.
    part: which of several of one quantity. tier: of the network. place: the stage (or first, middle, last) of what is written out for it.
    longest: the same of the longest rows.
    """

    quantity: str
    scope: Scope = "model"
    block: str = ""
    again: bool = False
    module: str = ""
    operation: str = ""
    tensor: str = ""
    phase: str = ""
    axis: str = ""
    part: str = ""
    tier: int = 0
    place: int | str | None = None
    longest: bool = False

    @property
    def text(self) -> str:
        """The symbol."""
        return _spelt(self)

    @property
    def rest(self) -> str:
        """The symbol without its quantity."""
        return _joined(self, _layout(self)[1:])

    @property
    def expr(self) -> Expr:
        """The symbol as an expression."""
        return symbol(_spelt(self))

    @property
    def section(self) -> str:
        """The block, or what else it is of: definitions that are read together."""
        return self.block if self.scope == "block" else self.scope

    def at(self, place: int | str | None) -> Key:
        """The same of one stage, by its index or part; of stage i for None."""
        return self._replace(place=place)


def of_block(
    quantity: str,
    block: str,
    again: bool = False,
    *,
    module: str = "",
    operation: str = "",
    tensor: str = "",
    phase: str = "",
    axis: str = "",
    part: str = "",
) -> Key:
    return Key(quantity, "block", block, again, module, operation, tensor, phase, axis, part)


def of_stage(quantity: str, part: str = "", *, phase: str = "", axis: str = "") -> Key:
    return Key(quantity, "stage", part=part, phase=phase, axis=axis)


def of_step(quantity: str, part: str = "", *, phase: str = "", axis: str = "") -> Key:
    return Key(quantity, "step", part=part, phase=phase, axis=axis)


def layers(kind: str, again: bool = False) -> Key:
    """Layers of a kind on stage i; again: those of them that are recomputed in full."""
    return Key("L", "stage", kind, again)


def layers_of_model(kind: str, again: bool = False) -> Key:
    return Key("L", "model", kind, again)


# By quantity and scope, else by scope: the fields in the order in which they are written. A word in quotes stands for itself, `of`
# before a module; `letter` is the phase's, `timed` the quantity with it, `kernel` a backward kernel's own phase; `ckpt` stands where
# it is again.
_LAYOUTS: dict[tuple[str, str], tuple[str, ...]] = {
    (quantity, scope): tuple(fields.split())
    for scope, quantities, fields in (
        ("sizes", "", "quantity part"),
        ("network", "", "quantity axis tier operation"),
        ("block", "", "quantity block ckpt of operation tensor kernel part"),
        ("block", "N P N_trained P_trained", "quantity block module tensor"),
        ("block", "t", "quantity letter block ckpt operation kernel"),
        ("block", "c e", "quantity letter block ckpt axis part"),
        ("block", "W", "quantity direction block ckpt"),
        ("model", "", "quantity of part"),
        ("model", "N", "quantity module part"),
        ("model", "L", "quantity block ckpt"),
        ("pipeline", "", "quantity"),
        ("stage", "", "quantity 'stage' of part"),
        ("stage", "L", "quantity block ckpt part 'i'"),
        ("stage", "t", "timed part 'stage' of"),
        ("stage", "c e", "quantity letter axis part 'stage'"),
        ("stage", "M_at", "quantity phase block ckpt part"),
        ("stage", "M_fp8", "quantity block"),
        ("stage", "P_output H_stage_link", "quantity part"),
        ("stage", "alive_i alive_dgrad_i", "quantity"),
        ("stage", "n_bucket", "quantity part"),
        ("stage", "calls handed_in got_back on_wire", "quantity block ckpt phase operation axis tensor part tier"),
        ("stage", "call_seconds ring_seconds tree_seconds", "quantity block ckpt phase operation axis tensor part tier"),
        ("step", "", "quantity part"),
        ("step", "t sum_t", "timed part"),
        ("step", "e", "quantity letter axis part"),
        ("step", "exposed", "quantity axis"),
    )
    for quantity in quantities.split() or [""]
}
_LETTERS = {"forward": "f", "inputs": "i", "weights": "w", "again": "r"}


def _layout(key: Key) -> tuple[str, ...]:
    return _LAYOUTS.get((key.quantity, key.scope)) or _LAYOUTS["", key.scope]


@lru_cache(maxsize=1 << 16)
def _spelt(key: Key) -> str:
    text = _joined(key, _layout(key)) + ("_longest" if key.longest else "")
    return text if key.place is None else f"{text}_at_{key.place}"


def _joined(key: Key, layout: tuple[str, ...]) -> str:
    written = (_written(key, field) for field in layout)
    return re.sub(r"\W+", "_", "_".join(word for word in written if word))


def _written(key: Key, field: str) -> str:
    letter = _LETTERS.get(key.phase, "b") if key.phase else ""
    match field:
        case "ckpt":
            return "ckpt" if key.again else ""
        case "of":
            return f"of_{key.module}" if key.module else ""
        case "letter":
            return letter
        case "timed":
            return key.quantity + letter
        case "direction":
            return "fwd" if key.phase == "forward" else "bwd"
        case "kernel":
            return "" if key.phase in _LETTERS else key.phase
        case "tier":
            return str(key.tier) if key.tier else ""
        case "'stage'" | "'i'":
            return field.strip("'")
        case _:
            return str(getattr(key, field))
