"""Seconds of calls, and the memory that processes hold."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

# how often memory is looked at: reading what a process holds takes a millisecond or two
WATCH_S = 0.1


def least_seconds(call: Callable[[], Any], seconds: float) -> float:
    """Seconds of the fastest of several calls."""
    least, made, until = math.inf, 0, time.perf_counter() + seconds
    while made < 3 or time.perf_counter() < until:
        began = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - began)
        made += 1
    return least


def processor_seconds(call: Callable[[], Any], least: float) -> float:
    """CPU seconds of a call, made again and again for `least` seconds."""
    made, began = 0, time.process_time()
    while (spent := time.process_time() - began) < least or not made:
        call()
        made += 1
    return max(spent, 1e-9) / made


def bytes_held(root: int) -> int:
    """Bytes that a process and its descendants hold, what they share counted once; 0 where the system does not say."""
    total, left = 0, [root]
    while left:
        own = Path(f"/proc/{left.pop()}")
        with suppress(OSError, ValueError):
            lines = (own / "smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10
            left += [int(child) for task in (own / "task").iterdir() for child in (task / "children").read_text().split()]
    return total
