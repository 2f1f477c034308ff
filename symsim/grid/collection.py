"""Work without Python's collector of cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# objects that earlier work may have left in cycles before they are looked for: a walk through them takes a small part of the time that made them
_MOST_LEFT = 1_000_000
_left = 0


@contextmanager
def no_collection() -> Iterator[None]:
    """Millions of small objects are made and few of them dropped: the collector would walk them again and again. What is left of it afterwards is
    looked through once, before the next such work."""
    global _left
    was = gc.isenabled()
    if was and _left > _MOST_LEFT:
        gc.collect()
        _left = 0
    gc.disable()
    try:
        yield
    finally:
        if was:
            _left += gc.get_count()[0]
            # to the oldest at once: as new ones all would be walked as soon as there is a collector again
            gc.freeze()
            gc.unfreeze()
            gc.enable()
