"""The public verbs in Python: what the command line reads, as names, texts, paths, mappings, or objects read before."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symsim.api.result import Result
from symsim.api.result import derive as derive_from
from symsim.errors import InputError, cut
from symsim.importers.job import Job
from symsim.inputs import models, strategies, systems
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.inputs.trained import as_named

if TYPE_CHECKING:
    from symsim.asking.answers import Answer


def load_model(reference: str | os.PathLike[str] | Mapping[str, Any]) -> Architecture:
    """A model by name ('llama3-70b'), from a YAML file, a Hugging Face config.json or a directory, or the contents of one of these.

    InputError where there is none, or it says what cannot be.

    >>> load_model("llama3-70b").num_layers
    80
    >>> load_model("llama3-7b")
    Traceback (most recent call last):
    symsim.errors.InputError: no model or file is named 'llama3-7b': did you mean 'llama3-70b'?
    """
    return model_of(reference).architecture


def load_strategy(text: str | os.PathLike[str] | Mapping[str, Any] | None = None, **overrides: Any) -> Strategy:
    """A strategy from text, a YAML file, a name or a mapping, then the overrides. InputError for an option that there is not.

    >>> load_strategy("tp=8,pp=4", sp=True).world_size
    32
    """
    return strategies.load_strategy(_text(text, "the strategy"), overrides)


def load_system(reference: str | os.PathLike[str]) -> System:
    """A system by name, or from a YAML file. InputError where there is none.

    >>> load_system("h100-sxm").title
    'H100 80GB SXM5 in DGX H100 nodes'
    """
    return systems.load_system(path_of(reference, "the system"))


def derive(
    model: Architecture | Job | str | os.PathLike[str] | Mapping[str, Any],
    strategy: Strategy | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    assumptions: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    system: System | str | os.PathLike[str] | None = None,
) -> Result:
    """Derive the closed formulas of a model under a strategy, and of its time on a system.

    Each of the three is what its `load_...` takes, or what that returned. A job is a model with its own strategy, system and assumptions: what is
    given beside it takes their place, and overrides change single options of it. assumptions: values by name, as of --set assume.NAME=VALUE;
    overrides: what else --set takes. InputError when the combination is impossible.

    >>> result = derive("llama3-8b", "tp=2,sp=true", overrides={"L": 16, "assume.causal": "half"}, system="h100-sxm")
    >>> result.value("params.total"), result.value("time.step") > 0
    (4540469248, True)
    >>> derive("llama3-8b", "tp=3")
    Traceback (most recent call last):
    symsim.errors.InputError: tp=3 does not divide num_attention_heads=32; valid: 1, 2, 4, 8, 16, 32
    """
    if not isinstance(assumptions, Mapping | None):
        given = cut(repr(assumptions))
        raise InputError(
            f"assumptions is {given}; a mapping of names to values is needed, such as {{'causal': 'half'}}; a system is system='h100-sxm'"
        )
    if isinstance(model, Architecture):
        model = as_named(model)
    else:
        loaded = model_of(model)
        model, strategy = loaded.architecture, strategy if strategy is not None else loaded.strategy
        system = system if system is not None else own_system(loaded)
        told = {name.removeprefix("assume.") for name in overrides or () if isinstance(name, str)}
        assumptions = {**{n: v for n, v in loaded.assumptions.items() if n not in told}, **(assumptions or {})}
    if not isinstance(strategy, Strategy):
        strategy = load_strategy(strategy)
    if system is not None and not isinstance(system, System):
        system = load_system(system)
    return derive_from(model, strategy, assumptions, overrides, system)


def ask(
    model: Architecture | Job | str | os.PathLike[str] | Mapping[str, Any],
    question: str,
    strategy: Strategy | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    system: System | str | os.PathLike[str] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
) -> "Answer":
    """The answer to a question as `symsim ask` takes it in quotes. InputError for what does not read, and as `derive`.

    >>> ask("llama3-8b", "largest s where M_peak <= 80 GiB", "tp=8,sp=true", "h100-sxm")
    largest s where M_peak <= 80 GiB
      s = 98,408 (now 4,096, where it holds)
    ...
    """
    return derive(model, strategy, None, overrides, system).ask(question)


def compile(
    model: Architecture | Job | str | os.PathLike[str] | Mapping[str, Any],
    strategy: Strategy | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    system: str | os.PathLike[str] | None = None,
    *,
    free: Sequence[str] | str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> str:
    """The source of a Python module whose `kernel` gives every quantity over arrays of the free symbols, and needs NumPy alone.

    free: the kernel's arguments, a sequence of names or text as of --free; None for all sizes and degrees that are not 1, and
    the system's numbers. overrides: what --set takes. InputError for what `symsim compile` refuses.

    >>> space = {}
    >>> exec(compile("llama3-8b", "tp=2", free=["b", "s"]), space)
    >>> space["kernel"](b=[1, 2], s=4096)["activations.saved_per_microbatch"].tolist()
    [12535816192.0, 24937414656.0]
    """
    from symsim.program.base import read_base
    from symsim.program.module import compile_module, free_names

    if not isinstance(free, Sequence | None):
        raise InputError(f"free is {cut(repr(free))}; names of arguments are needed, such as ['b', 's']")
    names = free_names(free) if isinstance(free, str) or free is None else list(free)
    machine = path_of(system, "the system") if system is not None else None
    return compile_module(read_base(model_of(model), strategy_of(strategy), machine, overrides or {}), names)


def model_of(reference: Architecture | Job | str | os.PathLike[str] | Mapping[str, Any]) -> models.LoadedModel:
    """The model with its default strategy. InputError as `load_model`, and for a job of no model."""
    if isinstance(reference, Job):
        if reference.architecture is None:
            raise InputError(f"the job of {reference.kind} names no model: load_job(..., model='llama3-8b') gives it one")
        return models.LoadedModel(
            as_named(reference.architecture),
            f"the job of {reference.kind}",
            strategy=reference.strategy,
            assumptions=reference.assumptions,
            system=reference.system,
        )
    if isinstance(reference, Architecture):
        return models.LoadedModel(as_named(reference), reference.name)
    if isinstance(reference, Mapping):
        return models.model_of_mapping(reference)
    return models.load_model(path_of(reference, "the model"))


def own_system(loaded: models.LoadedModel) -> System | str | None:
    """The system that a directory or a job has."""
    return systems.system_of(loaded.system) if isinstance(loaded.system, Mapping) else loaded.system


def strategy_of(reference: Strategy | str | os.PathLike[str] | Mapping[str, Any] | None) -> str | Mapping[str, Any] | None:
    """The strategy as a text or the options given. InputError for what is neither."""
    if isinstance(reference, Strategy):
        return reference.model_dump(exclude_unset=True)
    return _text(reference, "the strategy")


def path_of(reference: Any, what: str) -> str:
    """A name or a path as text; InputError for anything else."""
    if not isinstance(reference, (str, os.PathLike)):
        raise InputError(f"{what} is {cut(repr(reference))}; a name, a path or what its load_... returns is needed")
    return os.fspath(reference)


def _text(reference: Any, what: str) -> str | Mapping[str, Any] | None:
    return reference if reference is None or isinstance(reference, Mapping) else path_of(reference, what)
