"""Which layers each pipeline stage holds.

A model is a few runs of layers; a stage is contiguous chunks of them. Nothing here loops over layers: counts come
from how many layers of a kind lie before a position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from symsim.algebra.expr import ZERO, Expr, Number, expr, floor, maximum, minimum, symbol
from symsim.algebra.key import layers, layers_of_model
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.ir.roles import ROLES, role_of
from symsim.pipeline.layout import pipeline_layout
from symsim.pipeline.schedules import schedule_of

_FACTS = ("output_i", "checkpoints_i", "window_i", "whole_i", "received_i", "returned_i")


def runs(block: str) -> str:
    """The symbol of how often a stage runs a block for one micro-batch."""
    return role_of(block).runs or layers(block).text


def holds(block: str) -> str:
    """The symbol of how many copies of a block's parameters a stage holds (a tied table, or a repeated depth, differs from its runs)."""
    return role_of(block).holds or layers(block).text


def facts(kinds: Iterable[str]) -> frozenset[str]:
    """The symbols of stage i that are no definitions: its layers of each kind, and what else it holds."""
    own = (layers(kind, again=again).text for kind in kinds for again in (False, True))
    others = (name for role in ROLES.values() for name in (role.runs, role.holds))
    return frozenset((*others, *_FACTS, *own))


@dataclass(frozen=True)
class Chunk:
    """Layers [first, last) of the decoder, and what else the chunk holds."""

    first: int
    last: int
    embedding: bool = False
    loss: bool = False
    mtp: int = 0


@dataclass(frozen=True)
class Stage:
    """The chunks of one pipeline rank (one, or `vpp` of them)."""

    index: int
    chunks: tuple[Chunk, ...]

    @property
    def embedding(self) -> bool:
        return any(c.embedding for c in self.chunks)

    @property
    def loss(self) -> bool:
        return any(c.loss for c in self.chunks)

    @property
    def mtp(self) -> int:
        return sum(c.mtp for c in self.chunks)

    @property
    def apart(self) -> int:
        """Chunks, but two in a row as one: at the turn of a V nothing is sent between them."""
        return len(self.chunks) - sum(a.last == b.first for a, b in pairwise(self.chunks))

    @property
    def received(self) -> int:
        """Boundary tensors that come from other stages in the forward of a micro-batch."""
        return self.apart - self.embedding

    @property
    def sent(self) -> int:
        """Boundary tensors that go to other stages in forward, whose gradients return."""
        return self.apart - self.loss


def table_copies(model: Architecture, strategy: Strategy) -> int:
    """Stages that hold a copy of the embedding table: where tokens are looked up, where depths of MTP do it again, and where a
    tied head multiplies with it."""
    if strategy.pipeline_model_parallel_layout:
        made = stages(model, strategy, model.mtp_num_layers)
        return sum(s.embedding or bool(s.mtp) or (s.loss and model.tie_word_embeddings) for s in made)
    chunks = strategy.pp * strategy.vpp
    holders = [0, *([chunks - 1] if model.mtp_num_layers or model.tie_word_embeddings else [])]
    return len({_rank_of(chunk, strategy) for chunk in holders})


def gathers_on_arrival(strategy: Strategy, assumptions: Mapping[str, str]) -> bool:
    """Whether tensor ranks, each with the whole stream, send a share of a boundary tensor each and gather what comes."""
    apart = strategy.tp > 1 and strategy.pp > 1 and not strategy.sp
    return apart and assumptions["pipeline_scatter_gather"] == "true"


def sizes_of_kinds(model: Architecture) -> dict[str, Number]:
    """Of every kind of layer the number of its layers, its window and its own sizes, by symbol."""
    found: dict[str, Number] = {}
    for kind, held in layers_before(model, model.num_layers).items():
        spec = model.layer_kinds[kind]
        found[layers_of_model(kind).text] = held.constant()
        found |= {f"w_{kind}" if model.several_windows else "w": spec.window} if spec.window else {}
        found |= {f"{dim}_{kind}": size for dim, size in spec.own.items()}
    return found


def layers_before(model: Architecture, position: "int | Expr") -> dict[str, Expr]:
    """Layers of each kind among the first `position`, of at most all, as a closed form (an integer when position is one)."""
    counts: dict[str, Expr] = {name: ZERO for name in model.kind_names()}
    start = 0
    for segment in model.layers:
        period = len(segment.kinds)
        length = segment.repeat * period
        inside = maximum(expr(position) - start, 0) if start else expr(position)
        if segment is not model.layers[-1]:
            inside = minimum(inside, length)
        for kind in dict.fromkeys(segment.kinds):
            counts[kind] = counts[kind] + _among(inside, tuple(one == kind for one in segment.kinds))
        start += length
    return counts


def _among(first: Expr, places: tuple[bool, ...]) -> Expr:
    """How many of the first layers stand at places of a pattern that repeats, the shortest that says the same; or all but the others."""
    whole = len(places)
    period = next(n for n in range(1, whole + 1) if not whole % n and places == places[:n] * (whole // n))
    places = places[:period]
    if period == 1:
        return first if places[0] else ZERO
    if 2 * sum(places) > period:
        return first - _among(first, tuple(not here for here in places))
    return sum((floor((first + (period - 1 - offset)) / period) for offset, here in enumerate(places) if here), ZERO)


def kinds_between(model: Architecture, first: int, last: int) -> dict[str, int]:
    """Layers of each kind in [first, last): layers_before in integers, as it is asked for every chunk of every stage."""
    counts = dict.fromkeys(model.kind_names(), 0)
    start = 0
    for segment in model.layers:
        period = len(segment.kinds)
        length = segment.repeat * period
        low, high = (min(max(position - start, 0), length) for position in (first, last))
        for offset, kind in enumerate(segment.kinds):
            counts[kind] += (high + period - 1 - offset) // period - (low + period - 1 - offset) // period
        start += length
    return counts


def stages(model: Architecture, strategy: Strategy, mtp: int) -> list[Stage]:
    """Every pipeline stage of a checked strategy. Uneven defaults: chunk j of n ends at floor((j+1) L / n)."""
    if strategy.pipeline_model_parallel_layout:
        return _from_layout(strategy)
    chunks = _split(model, strategy)
    n = strategy.pp * strategy.vpp
    made: list[Stage] = []
    for rank in range(strategy.pp):
        own = []
        for j in _chunks_of(rank, strategy):
            last = j == n - 1
            own.append(Chunk(*chunks[j], embedding=j == 0, loss=last, mtp=mtp if last else 0))
        made.append(Stage(rank, tuple(own)))
    return made


def _chunks_of(rank: int, strategy: Strategy) -> list[int]:
    """Which chunks of the model a rank holds: every pp-th, or the two of a V (zbv: arXiv:2405.15362, dualpipev)."""
    n = strategy.pp * strategy.vpp
    return [rank, n - 1 - rank] if schedule_of(strategy).placement == "v" else list(range(rank, n, strategy.pp))


def _rank_of(chunk: int, strategy: Strategy) -> int:
    """The rank that holds a chunk of the model."""
    return min(chunk, strategy.pp * strategy.vpp - 1 - chunk) if schedule_of(strategy).placement == "v" else chunk % strategy.pp


def _split(model: Architecture, strategy: Strategy) -> list[tuple[int, int]]:
    layers, p, v = model.num_layers, strategy.pp, strategy.vpp
    first, last = strategy.num_layers_in_first_pipeline_stage, strategy.num_layers_in_last_pipeline_stage
    if first or last:
        middle = p - (first is not None) - (last is not None)
        rest = layers - (first or 0) - (last or 0)
        each = rest // middle if middle else 0
        sizes = [first or each] + [each] * (p - 2) + [last or each]
        per_chunk = [size // v for size in sizes] * v
    else:
        extra = strategy.account_for_embedding_in_pipeline_split + strategy.account_for_loss_in_pipeline_split
        n = p * v
        ends = [(j + 1) * (layers + extra) // n for j in range(n)]
        per_chunk = [end - start for start, end in zip([0, *ends], ends)]
        if strategy.account_for_embedding_in_pipeline_split:
            per_chunk[0] -= 1
        if strategy.account_for_loss_in_pipeline_split:
            per_chunk[-1] -= 1
    position, made = 0, []
    for size in per_chunk:
        made.append((position, position + size))
        position += size
    return made


def _from_layout(strategy: Strategy) -> list[Stage]:
    position, chunks = 0, []
    for part in pipeline_layout(strategy.pipeline_model_parallel_layout or ""):
        chunks.append(Chunk(position, position + part.count("t"), "E" in part, "L" in part, part.count("m")))
        position += part.count("t")
    return [Stage(r, tuple(chunks[j] for j in _chunks_of(r, strategy))) for r in range(strategy.pp)]


def stage_layer_formula(model: Architecture, strategy: Strategy) -> dict[str, Expr] | None:
    """Layers of each kind on stage `i`, in closed form, for the even split without chunks; None for explicit layouts, and where a stage counts
    layers otherwise than the model (`shared.py`)."""
    explicit = (
        strategy.pipeline_model_parallel_layout,
        strategy.num_layers_in_first_pipeline_stage,
        strategy.num_layers_in_last_pipeline_stage,
        strategy.account_for_embedding_in_pipeline_split,
        strategy.account_for_loss_in_pipeline_split,
    )
    if strategy.vpp > 1 or any(explicit) or (model.shares_weights and strategy.pp > 1):
        return None
    length = symbol("L")
    start, end = floor(symbol("i") * length / symbol("pp")), floor((symbol("i") + 1) * length / symbol("pp"))
    low, high = layers_before(model, start), layers_before(model, end)
    return {kind: high[kind] - low[kind] for kind in low}
