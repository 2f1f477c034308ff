"""What can be trained and what not, refused with the reason: names that no parameter has, targets that no adapter fits."""

from __future__ import annotations

from collections.abc import Iterator

from symsim.algebra.expr import product
from symsim.errors import InputError, cut, nearest
from symsim.frameworks.choices import FRAMEWORKS
from symsim.frameworks.eager_modules import of_its_own
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.inputs.trained import respelt
from symsim.inputs.tuning import PROJECTED, Named, named, ranked, tunes
from symsim.ir.operations import LINEAR, Projection
from symsim.lowering.adapt import ALL_LINEAR, is_joint, is_target, map_names, module_names
from symsim.lowering.lower import declared_alone
from symsim.lowering.shares import divisors
from symsim.lowering.tuned import parameters_named, ranks_without_adapters, trains_anything
from symsim.pipeline.stages import sizes_of_kinds
from symsim.placement.sizes import values


def tuning(architecture: Architecture, strategy: Strategy) -> None:
    """InputError for a name of a parameter or of a linear map that there is not, and where nothing is trained."""
    if architecture.modelling in PROJECTED.get(strategy.task_type, ()):
        what = "a projection before its scores, or a bias"
        raise InputError(f"task_type={strategy.task_type}: a head of classes of {architecture.modelling} has {what}, which is not modelled")
    _named_parameters(architecture, strategy)
    if strategy.modules_to_save and strategy.tuner_type == "full":
        raise InputError("modules_to_save says what is trained beside adapters (tuner_type=lora, oft); else all that freeze_parameters leaves is")
    if strategy.exclude_modules and strategy.tuner_type == "full":
        raise InputError("exclude_modules says which linear maps have no adapters, and there are none; give tuner_type=lora or oft")
    if strategy.tuner_type == "oft":
        _rotated(architecture, strategy)
    if strategy.tuner_type != "full":
        _targets(architecture, strategy)
    _stored(strategy)
    if strategy.reference_models and strategy.offload_parameters:
        said = "whether a reference model's weights are on the host too is not known; give one of them"
        raise InputError(f"reference_models={strategy.reference_models} with offload_parameters=true: {said}")
    if tunes(strategy) and not trains_anything(architecture, strategy):
        left, given = ("freeze_parameters", "parameter") if strategy.tuner_type == "full" else ("exclude_modules", "adapter")
        raise InputError(f"nothing is trained: {left} leaves no {given}; name what is in trainable_parameters")


def _named_parameters(architecture: Architecture, strategy: Strategy) -> None:
    lists = {name: getattr(strategy, name) for name in ("freeze_parameters", "trainable_parameters", "modules_to_save")}
    known = parameters_named(architecture) if any(lists.values()) else {}
    for option, entries in lists.items():
        for text in entries or ():
            entry = named(text)
            if entry.name not in known:
                said = f"no parameter is called '{cut(entry.name, 40)}'"
                raise InputError(f"{option}={cut(text)}: {said}: {nearest(entry.name, list(known))}")
            _layers_named(architecture, f"{option}={cut(text)}", entry)


def _layers_named(architecture: Architecture, said: str, entry: Named) -> None:
    if entry.first is not None and entry.last is not None and not entry.first <= entry.last < architecture.num_layers:
        raise InputError(f"{said}: {architecture.name} has layers 0 to {architecture.num_layers - 1}")


def _stored(strategy: Strategy) -> None:
    """What libraries of few bits and of magnitudes do not run."""
    for option in ("use_dora", "quantize_base"):
        given = getattr(strategy, option)
        if given in (False, "none"):
            continue
        shown = f"{option}={str(given).lower()}"
        if strategy.tuner_type != "lora" and not (option == "quantize_base" and strategy.tuner_type == "oft"):
            raise InputError(f"{shown} is of adapters beside frozen weights; give tuner_type=lora")
        if strategy.tp > 1 or strategy.expert_tp > 1:
            raise InputError(f"{shown} with tp above 1 has no framework: weights in blocks are not split by rows or columns; give tp=1 and zero=3")
    if strategy.fused_adapters:
        needed = {"tuner_type": "lora", "fusion": "eager", "use_dora": False, "tp": 1}
        wrong = next((name for name, value in needed.items() if getattr(strategy, name) != value), None)
        if wrong is not None:
            given, right = (str(value).lower() for value in (getattr(strategy, wrong), needed[wrong]))
            raise InputError(f"fused_adapters={'+'.join(strategy.fused_adapters)} needs {wrong}={right}, and it is {given}")
    if strategy.quantize_experts and strategy.quantize_base == "none":
        raise InputError("quantize_experts=true says that experts are stored in few bits too; give quantize_base")
    if strategy.quantize_base == "int8" and strategy.zero == 3:
        raise InputError("quantize_base=int8 with zero=3: bitsandbytes shards weights of 4 bits alone; give quantize_base=nf4, or zero=0")
    if strategy.quantize_base != "none" and strategy.fp8 != "none":
        raise InputError(f"quantize_base={strategy.quantize_base} and fp8={strategy.fp8} both say how linear maps multiply; give one of them")


def _rotated(architecture: Architecture, strategy: Strategy) -> None:
    """peft's OFT rotates blocks of the inputs of whole linear modules (tuners/oft/layer.py)."""
    if strategy.fusion not in ("eager", "compile"):
        raise InputError(f"tuner_type=oft rotates each module's inputs by itself, which fusion={strategy.fusion} does not have; give fusion=eager")
    if strategy.tp > 1 or strategy.expert_tp > 1:
        raise InputError("tuner_type=oft with tp above 1 has no framework: a block of inputs may lie on two ranks; give tp=1 and zero=3")
    if strategy.autocast:
        raise InputError("tuner_type=oft with autocast=true is not modelled: rotations would be cast for every map; give autocast=false")
    # sizes of the model alone: with those of the strategy the rule would read each of them, at every point of a grid
    framework, at = FRAMEWORKS[strategy.fusion], values(architecture, Strategy()) | sizes_of_kinds(respelt(architecture))
    for block in declared_alone(architecture).values():
        for op in block.ops:
            if op.kind not in LINEAR or not is_target(op, strategy, framework, architecture, None, anywhere=True):
                continue
            (says, *_), name = op.einsums, op.name
            if says.chosen:
                raise InputError(f"target_modules={name}: rotations of experts' inputs have no framework; give linear maps of attention, or an mlp")
            inputs = product(block.dims[d].size for d in says.contracted).evaluate(at)
            if inputs % strategy.oft_block_size:
                right = divisors(int(inputs))
                raise InputError(f"oft_block_size={strategy.oft_block_size} does not divide the {inputs} inputs of {name}; valid: {right}")


def _targets(architecture: Architecture, strategy: Strategy) -> None:
    framework = FRAMEWORKS[strategy.fusion]
    linear = [op for block in declared_alone(architecture).values() for op in block.ops if op.kind in LINEAR]
    several = [op for op in linear if len(op.of(Projection).labels) > 1 and is_joint(op, framework.name, architecture)]
    joint = {name: op for op in several for pair in map_names(op).items() for name in pair if name not in module_names(op)}
    known = {name: op for op in linear for name in (*map_names(op), *map_names(op).values(), *module_names(op))}
    if not strategy.target_modules:
        raise InputError(f"tuner_type={strategy.tuner_type} needs at least one name in target_modules, or all_linear")
    for field, text, entry in _of_maps(strategy):
        _layers_named(architecture, f"{field}={cut(text)}", entry)
        if entry.name == "layers" and entry.first is not None:
            continue
        name = entry.name
        if name == ALL_LINEAR and field == "target_modules":
            continue
        if name == ALL_LINEAR and field == "exclude_modules":
            raise InputError("exclude_modules=all_linear leaves no linear map with an adapter; name those that have none")
        if name not in known:
            names = [ALL_LINEAR, *known] if field == "target_modules" else [*known]
            raise InputError(f"{field}={cut(name)}: no linear map is called so: {nearest(name, names)}")
        if "lm_head" in known[name].of(Projection).labels and field == "target_modules":
            raise InputError(f"target_modules={name}: adapters beside the output layer are not modelled; modules_to_save=lm_head trains it whole")
        if field == "target_modules" and not framework.adapts_experts and of_its_own(known[name], architecture):
            raise InputError(f"target_modules={name}: {architecture.name} has modules of its own for it, beside which peft puts no adapters")
        if name in joint:
            own = " and ".join(joint[name].of(Projection).labels)
            raise InputError(f"{field}={name}: {own} are one product here, which has one adapter: give {joint[name].name}")
    if strategy.tuner_type == "lora" and strategy.rank_pattern:
        _ranks(architecture, strategy)


def _of_maps(strategy: Strategy) -> Iterator[tuple[str, str, Named]]:
    """The entries that name linear maps, with their options and as they are written."""
    yield from (("target_modules", text, named(text)) for text in strategy.target_modules)
    yield from (("exclude_modules", text, named(text)) for text in strategy.exclude_modules or ())
    if strategy.tuner_type == "lora":
        yield from (("rank_pattern", text, ranked(text).entry) for text in strategy.rank_pattern or ())


def _ranks(architecture: Architecture, strategy: Strategy) -> None:
    for text in ranks_without_adapters(architecture, strategy):
        why = "it is the rank of no adapter: there is none at what it names, or an entry before says its rank"
        raise InputError(f"rank_pattern={cut(text)}: {why}")
