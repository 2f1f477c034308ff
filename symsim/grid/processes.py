"""Processes forked from this one, which find what it has already made; they leave Ctrl-C to it and do not outlive it."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

_SHARED: Any = None


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def forked(what: Any, workers: int) -> "ProcessPoolExecutor":
    """A pool whose processes find `what` by `shared`."""
    # most of what reads this file forks nothing
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    global _SHARED
    _SHARED = what
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"), initializer=_begin)


def shared() -> Any:
    return _SHARED


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        import ctypes

        parent_death, kill = 1, 9
        ctypes.CDLL(None).prctl(parent_death, kill)
