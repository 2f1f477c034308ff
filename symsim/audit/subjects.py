"""What claims are of: models, strategies and systems derived once each, as expressions over symsim's symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from symsim.algebra.expr import Expr, Number, expr, symbol
from symsim.algebra.facts import Fact, read_facts
from symsim.algebra.key import layers, layers_of_model
from symsim.api.result import Result, derive
from symsim.audit.claims import Subject
from symsim.errors import InputError, nearest
from symsim.inputs.curves import SYMBOLS as COEFFICIENTS
from symsim.inputs.deciding import DEGREES
from symsim.inputs.models import load_model
from symsim.inputs.shipped import derivations_directory, list_models, list_systems
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system

_TIMES = ("alpha_", "lambda_", "eta_", "t_launch", "t_gather")
_INDICATORS = ("first_i", "loss_i", "last_layer_i", "embedding_i", "output_i")
_POSSIBLE = read_facts(["t_slow <= sum_t <= pp*t_slow", "i <= pp - 1", *(f"{name} <= 1" for name in _INDICATORS)])


@dataclass(frozen=True)
class Derived:
    """A subject's derivation, and what stands for some of its symbols in every claim about it."""

    subject: Subject
    result: Result

    @cached_property
    def fixed(self) -> dict[str, Expr]:
        """The layers of a model of one kind are L, and L those of all kinds where it has several; ranks are the product of the degrees; of
        the system, the rate of the type that is computed in is Phi, and shares of 1 and times of 0 are put in."""
        values = self.result.values
        kinds = self.result.model.kind_names()
        found = {layers_of_model(kinds[0]).text: symbol("L")} if len(kinds) == 1 else {"L": sum((layers_of_model(k).expr for k in kinds), expr(0))}
        if self.result.system is not None:
            ranks = expr(1)
            for degree in ("tp", "cp", "pp", "dp"):
                ranks = ranks * (symbol(degree) if values[degree] != 1 else 1)
            found["world"] = ranks
            found[f"Phi_{self.result.strategy.precision}"] = symbol("Phi")
            for name, value in values.items():
                if (name in COEFFICIENTS or name.startswith(_TIMES)) and value in (0, 1):
                    found[name] = expr(int(value))
        return found

    @cached_property
    def only_stage(self) -> dict[str, Expr]:
        """Without pipeline stages, what the one there is holds: every layer, the embedding and the head."""
        result = self.result
        if result.strategy.pp != 1:
            return {}
        own = result.stage_values(result.stages[0])
        found = {name: expr(own[name]) for name in ("i", *_INDICATORS)} | {"sum_t": symbol("t_slow")}
        if own["mtp_i"]:
            found["mtp_i"] = symbol("D")
            found["mtp_copies_i"] = expr(1) if result.model.mtp_use_repeated_layer else symbol("D")
        else:
            found |= {"mtp_i": expr(0), "mtp_copies_i": expr(0)}
        every = expr(0)
        for kind in result.model.kind_names():
            whole = layers_of_model(kind)
            held, again = layers(kind).text, layers(kind, again=True).text
            number, count = self.fixed.get(whole.text, whole.expr), own[held]
            every = every + number
            if count == result.values[whole.text]:
                found[held] = number
            if own.get(again) == count:
                found |= {again: number, layers_of_model(kind, again=True).text: number}
        if own.get("checkpoints_i") == result.model.num_layers:
            found["checkpoints_i"] = every
        return found

    @cached_property
    def possible(self) -> tuple[Fact, ...]:
        """What holds of the symbols of every stage and of the times of all of them, whatever a claim says; and that ranks share what they do here:
        with one of them there are other formulas."""
        kinds = self.result.model.kind_names()
        one = {"pp": expr(1)} if self.result.strategy.pp == 1 else {}
        known = (Fact(f.left.substitute(one), f.relation, expr(f.right).substitute(one)) for f in _POSSIBLE if isinstance(f.right, Expr))
        shared = (Fact(symbol(name), ">=", expr(2)) for name in DEGREES if self.values.get(name, 1) > 1)
        return (*known, *shared, *(Fact(layers(k).expr, "<=", self.fixed.get(layers_of_model(k).text, layers_of_model(k).expr)) for k in kinds))

    def known(self, name: str) -> bool:
        """Whether a name is a symbol or a definition of this derivation."""
        return name in self.result.values or name in self.result.derivation.definitions or name in self.result.further.definitions

    def names(self) -> list[str]:
        return [*self.result.values, *self.result.further.definitions]

    @property
    def values(self) -> Mapping[str, Number]:
        return self.result.values


class Derivations:
    """Derivations of subjects, each made once."""

    def __init__(self) -> None:
        self._made: dict[Subject, Derived | InputError] = {}
        self._models = cache(lambda name: load_model(_model_named(name)).architecture)
        self._systems = cache(lambda name: load_system(_system_named(name)))

    def of(self, subject: Subject) -> Derived:
        """InputError for a model, a strategy or a system that is not there or does not go together."""
        if subject not in self._made:
            try:
                self._made[subject] = Derived(subject, self._derived(subject))
            except InputError as error:
                self._made[subject] = error
        found = self._made[subject]
        if isinstance(found, InputError):
            raise InputError(str(found))
        return found

    def _derived(self, subject: Subject) -> Result:
        model = self._models(subject.model)
        system = self._systems(subject.system) if subject.system else None
        ideal = {"gemm_tiles": "ignored"} if subject.system in bare_systems() else {}
        return derive(model, load_strategy(subject.strategy), {**ideal, **dict(subject.assumptions)}, dict(subject.settings), system)


def bare_models() -> list[str]:
    """Models that are there for claims."""
    return sorted(p.stem for p in (derivations_directory() / "models").glob("*.yaml"))


def bare_systems() -> list[str]:
    return sorted(p.stem for p in (derivations_directory() / "systems").glob("*.yaml"))


def _model_named(name: str) -> str:
    return _named(name, "models", bare_models(), list_models())


def _system_named(name: str) -> str:
    return _named(name, "systems", bare_systems(), list_systems())


def _named(name: str, folder: str, bare: list[str], shipped: list[str]) -> str:
    if name in bare:
        return str(derivations_directory() / folder / f"{name}.yaml")
    if name in shipped or Path(name).suffix or Path(name).is_dir():
        return name
    raise InputError(f"there is no {folder[:-1]} '{name}': {nearest(name, [*bare, *shipped])}")
