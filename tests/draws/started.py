"""What processes that start another trainer with exported files have in common: their answers, and packages that are not there."""

from __future__ import annotations

import abc
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock


class _Kernels(abc.ABCMeta):
    """Of classes that others derive from."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


class _Absent(types.ModuleType):
    """A module that has every name: classes, functions and modules, new enough for anyone."""

    __version__ = "99.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Kernels(name, (), {}) if name[0].isupper() else importlib.import_module(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made

    def __call__(self, *given: Any, **named: Any) -> Any:
        return MagicMock()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.packages else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def stand_in(*packages: str) -> None:
    """Packages of kernels, each with all of its modules, whatever their names are."""
    sys.meta_path.insert(0, _Finder(packages))


def answered(scripts: Sequence[str], started: Callable[[Path], dict[str, Any]]) -> None:
    """A line of JSON for each: {"script", "error", "means"}, the error empty where it starts."""
    for script in scripts:
        error, means = "", dict[str, Any]()
        try:
            means = started(Path(script))
        except (Exception, SystemExit) as raised:
            error = f"{type(raised).__name__}: {raised}"
            print(traceback.format_exc(), file=sys.stderr)
        print(json.dumps({"script": script, "error": error, "means": means}), flush=True)
