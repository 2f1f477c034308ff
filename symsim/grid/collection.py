"""Work without Python's collector of cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Millions of small objects are made and none of them dropped: the collector would walk them again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            # what was made stays to the end: enabling would walk it all at once
            gc.freeze()
            gc.enable()
