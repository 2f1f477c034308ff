"""What comes with symsim: where its models, strategies, systems and published totals lie, and their names."""

from __future__ import annotations

from functools import cache
from pathlib import Path


def models_directory() -> Path:
    """The models that come with symsim: inside an installed package, or beside it in a checkout."""
    return _shipped("models")


def derivations_directory() -> Path:
    """The published totals that come with symsim."""
    return _shipped("derivations")


def for_claims(folder: str, name: str) -> Path | None:
    """The file of a model ('models') or a system ('systems') that is there for claims of the audit, if one has this name."""
    return next((one for one in (derivations_directory() / folder).glob("*.yaml") if one.stem == name), None)


@cache
def _shipped(name: str) -> Path:
    package = Path(__file__).resolve().parents[1]
    packaged = package / f"_{name}"
    return packaged if packaged.is_dir() else package.parent / name


def list_models() -> list[str]:
    return _names(models_directory())


def list_strategies() -> list[str]:
    return _names(models_directory() / "strategies")


def list_systems() -> list[str]:
    return _names(models_directory() / "systems")


def _names(directory: Path) -> list[str]:
    return sorted(path.stem for path in directory.glob("*.yaml"))
