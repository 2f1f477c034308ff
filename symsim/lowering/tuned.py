"""The architecture as it is tuned: layers of a kind that differ in what is trained, in whether a gradient flows into them, or in the type of
their products, are kinds of their own. A run of layers stays a run: it is cut where a named range begins or ends, around the lowest trained
layer, and behind the first and before the last layers that a recipe of narrow products leaves out.

    dense            trained, and so is something before it     dense_frozen     nothing trained in it or before: no backward
    dense_lowest     the lowest trained layer                   dense_passing    nothing trained in it, something before
    dense_wide       its products are of the type of the computation, not of the recipe
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from symsim.algebra.kinds import EMBEDDING, spelt
from symsim.frameworks.choices import FRAMEWORKS
from symsim.frameworks.framework import BY_RULE
from symsim.inputs.architecture import Architecture, LayerKind
from symsim.inputs.layer_pattern import Segment
from symsim.inputs.strategy import Strategy
from symsim.inputs.traced import once
from symsim.inputs.trained import as_named
from symsim.inputs.tuning import Named, Ranked, TunedKind, is_trained, named, ranked, tunes
from symsim.ir.block import Block, Tensor
from symsim.ir.operations import LINEAR
from symsim.lowering.adapt import ALL_LINEAR, is_target, map_names, module_names, own_rank, target_names
from symsim.lowering.lower import declared_alone
from symsim.lowering.marked import names_of

_WORDS = {(False, False): "_frozen", (True, False): "_lowest", (False, True): "_passing", (True, True): "_partly"}


@once
def tuned(model: Architecture, strategy: Strategy) -> Architecture:
    """The architecture with the kinds of layers that the strategy tells apart; the model's own where all is trained and multiplied alike."""
    model = untuned(model)
    inner = _narrow(model, strategy)
    if not tunes(strategy) and inner == (0, model.num_layers):
        return model
    made = declared_alone(model)
    blocks = {EMBEDDING: made[EMBEDDING], **{kind: made[spelt(kind)] for kind in model.kind_names()}}
    ends = {0, *inner, model.num_layers}
    for entry in _entries(strategy):
        if entry.first is not None and entry.last is not None:
            ends |= {min(entry.first, model.num_layers), min(entry.last + 1, model.num_layers)}
    runs = list(pairwise(sorted(ends)))
    if tunes(strategy):
        runs = [run for first, last in runs for run in _cut_around(model, strategy, blocks, first, last)]
    below = strategy.trained_before or any(_trained(strategy, blocks[EMBEDDING], None, model)) or _checkpoint_needs_it(strategy)
    return _with_kinds(model, strategy, blocks, runs, below)


def _entries(strategy: Strategy) -> Iterator[Named]:
    """All that names parameters or linear maps of some layers."""
    options = ("freeze_parameters", "trainable_parameters", "modules_to_save", "target_modules", "exclude_modules")
    yield from (named(entry) for option in options for entry in getattr(strategy, option) or ())
    yield from (one.entry for one in map(ranked, strategy.rank_pattern or ()))


def _narrow(model: Architecture, strategy: Strategy) -> tuple[int, int]:
    """The layers from the first to before the last whose products a recipe makes narrow (Megatron-Core fp8_utils.py
    is_first_last_bf16_layer)."""
    return strategy.num_layers_at_start_in_bf16, model.num_layers - strategy.num_layers_at_end_in_bf16


def _checkpoint_needs_it(strategy: Strategy) -> bool:
    """Whether the stream has a gradient from the first layer on all the same: checkpointed layers whose input has none have no
    backward, so adapters' libraries ask for one (peft prepare_model_for_gradient_checkpointing; ms-swift), and transformers always."""
    asks = strategy.tuner_type != "full" or FRAMEWORKS[strategy.fusion].checkpoints_ask
    return asks and strategy.recompute not in ("none", "selective")


def untuned(model: Architecture) -> Architecture:
    """The architecture with its own kinds."""
    if not any(isinstance(k, TunedKind) for k in model.layer_kinds.values()):
        return model
    # bases are as the user named them
    model = as_named(model)
    kinds = model.layer_kinds
    own = {n: k.base if isinstance(k, TunedKind) else n for n, k in kinds.items()}
    plain = {own[n]: LayerKind(**{f: getattr(k, f) for f in LayerKind.model_fields}) for n, k in kinds.items()}
    layers = tuple(Segment(repeat=s.repeat, kinds=tuple(own[k] for k in s.kinds)) for s in model.layers)
    return model.model_copy(update={"layers": layers, "layer_kinds": plain})


def _trained(strategy: Strategy, block: Block, at: int | None, model: Architecture) -> Iterator[bool]:
    """Of each parameter that a block declares, whether it is trained in layer `at`."""
    return (is_trained(strategy, names_of(block, t, model), at) for t in block.parameters())


def _trains(strategy: Strategy, block: Block, at: int, model: Architecture) -> bool:
    return bool(adapted_weights(strategy, block, at, model)) or any(_trained(strategy, block, at, model))


def adapted_weights(strategy: Strategy, block: Block, at: int | None, model: Architecture) -> dict[str, Ranked | None]:
    """The weights of the block's linear maps that have an adapter in layer `at` (None: in no layer), and the entry of rank_pattern
    that says its rank, where one does."""
    framework, named_so, excluded = FRAMEWORKS[strategy.fusion], target_names(strategy.target_modules, at), target_names(strategy.exclude_modules, at)
    if strategy.tuner_type == "full" or ALL_LINEAR in excluded:
        return {}
    linear = [op for op in block.ops if op.kind in LINEAR and module_names(op).isdisjoint(excluded)]
    # a framework may run each of joint maps by itself
    left = [(op, {one: name for one, name in map_names(op).items() if excluded.isdisjoint((one, name))}) for op in linear]
    every = {op.name for op, _ in left if is_target(op, strategy, framework, model, at)}
    own = ((op, one, name) for op, maps in left for one, name in maps.items() if op.name in every or not named_so.isdisjoint((one, name)))
    return {f"{name}.weight": own_rank({one, name, *module_names(op)}, strategy, at) for op, one, name in own}


def _aside(strategy: Strategy, block: Block, at: int, model: Architecture) -> bool:
    """Whether all that is trained of a block is in parts whose inputs are detached, such as an indexer: no gradient goes on from there."""
    inside = {t for op in block.ops if not BY_RULE.unrecorded.isdisjoint(op.parts) for t in op.inputs}
    trained = [t.name for t in block.parameters() if is_trained(strategy, names_of(block, t, model), at)]
    return strategy.tuner_type == "full" and bool(trained) and set(trained) <= inside


def _cut_around(model: Architecture, strategy: Strategy, blocks: dict[str, Block], first: int, last: int) -> list[tuple[int, int]]:
    """Layers [first, last), in which names mean the same throughout, cut around the first that has trained parameters."""
    found = next((i for i in range(first, last) if _trains(strategy, blocks[_kind_at(model, i)], i, model)), None)
    if found is None:
        return [(first, last)]
    ends = sorted({first, found, found + 1, last})
    return list(pairwise(ends))


def _kind_at(model: Architecture, position: int) -> str:
    for segment in model.layers:
        length = segment.repeat * len(segment.kinds)
        if position < length:
            return segment.kinds[position % len(segment.kinds)]
        position -= length
    raise AssertionError("a layer beyond the last")


def _with_kinds(model: Architecture, strategy: Strategy, blocks: dict[str, Block], runs: list[tuple[int, int]], below: bool) -> Architecture:
    """The runs with kinds named by what is trained; kinds of the last run that differ from no other keep their names."""
    segments: list[tuple[Segment, int, bool]] = []
    for first, last in runs:
        parts = list(_between(model.layers, first, last))
        segments += [(part, first, below) for part in parts]
        through = (blocks[k] for part in parts for k in part.kinds if not _aside(strategy, blocks[k], first, model))
        below = below or any(_trains(strategy, block, first, model) for block in through)
    spelt: dict[tuple[str, frozenset[str], frozenset[tuple[str, int | None]], bool, bool, bool], str] = {}
    narrow_from, narrow_to = _narrow(model, strategy)
    kinds: dict[str, LayerKind] = {}
    layers: list[Segment] = []
    for part, at, enters in reversed(segments):
        own, wide = [], not narrow_from <= at < narrow_to
        for kind in part.kinds:
            block, trains = blocks[kind], _trains(strategy, blocks[kind], at, model)
            aside = _aside(strategy, block, at, model)
            trained = frozenset(t.name for t in block.parameters() if is_trained(strategy, names_of(block, t, model), at))
            adapted = adapted_weights(strategy, block, at, model).items()
            key = (kind, trained, frozenset((name, own and own.rank) for name, own in adapted), trains, enters, wide)
            if key not in spelt:
                plain = kind if (trains and enters) else f"{kind}{_WORDS[trains, enters]}"
                spelt[key] = _free(f"{plain}_wide" if wide else plain, {*kinds, *(model.layer_kinds.keys() - {kind})})
            name = spelt[key]
            fields = {f: getattr(model.layer_kinds[kind], f) for f in LayerKind.model_fields}
            kinds.setdefault(name, TunedKind(**fields, base=kind, at=at, trains=trains, enters=enters, wide=wide, aside=aside))
            own.append(name)
        layers.append(Segment(repeat=part.repeat, kinds=tuple(own)))
    return model.model_copy(update={"layers": tuple(reversed(layers)), "layer_kinds": kinds})


def _free(name: str, taken: Iterable[str]) -> str:
    """The name, or with the first number that makes it a new one."""
    used = set(taken)
    return name if name not in used else next(c for n in range(2, 10_000) if (c := f"{name}_{n}") not in used)


def _between(segments: Iterable[Segment], first: int, last: int) -> Iterator[Segment]:
    """The runs of layers [first, last): repetitions that are cut stand as the layers that are left of them."""
    start = 0
    for segment in segments:
        period = len(segment.kinds)
        end = start + segment.repeat * period
        low, high = max(first, start) - start, min(last, end) - start
        if low < high:
            head = min(-low % period, high - low)
            whole = (high - low - head) // period
            if head:
                yield Segment(repeat=1, kinds=segment.kinds[low % period : low % period + head])
            if whole:
                yield Segment(repeat=whole, kinds=segment.kinds)
            if rest := high - low - head - whole * period:
                yield Segment(repeat=1, kinds=segment.kinds[:rest])
        start = end


def parameters_named(model: Architecture) -> dict[str, Tensor]:
    """Every name that an entry may have, and a parameter that it means."""
    return {name: t for block in declared_alone(model).values() for t in block.parameters() for name in names_of(block, t, model)}


def trains_anything(model: Architecture, strategy: Strategy) -> bool:
    """Whether any parameter or adapter is trained, or something before the first layer."""
    if strategy.trained_before:
        return True
    model = untuned(model)
    blocks = declared_alone(model)
    ends = (block for name, block in blocks.items() if name not in model.layer_kinds)
    if any(adapted_weights(strategy, block, None, model) or any(_trained(strategy, block, None, model)) for block in ends):
        return True
    return any(k.trains for k in tuned(model, strategy).layer_kinds.values() if isinstance(k, TunedKind))


def ranks_without_adapters(model: Architecture, strategy: Strategy) -> list[str]:
    """Entries of rank_pattern that say the rank of no adapter: there is none, or an entry before them says it."""
    model = untuned(model)
    blocks = declared_alone(model)
    places: list[tuple[Block, int | None]] = [(blocks[spelt(_kind_at(model, at))], at) for at in range(model.num_layers)]
    places += [(block, None) for name, block in blocks.items() if name not in {spelt(kind) for kind in model.layer_kinds}]
    used = {own for block, at in places for own in adapted_weights(strategy, block, at, model).values()}
    return [text for text in strategy.rank_pattern or () if ranked(text) not in used]
