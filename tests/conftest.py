"""What every test process starts with."""

import gc
import os
import resource
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from symsim.grid import collection

# a shell starts what runs in the background with interrupts ignored, and the programs that tests start would inherit it
signal.signal(signal.SIGINT, signal.default_int_handler)

# definitions and formulas stay as long as a test's result does: going through them all again and again is a tenth of the tests' time
gc.set_threshold(100_000, 20, 20)
# what a test's sweep leaves in cycles is little, and a walk through all that other tests keep takes seconds
collection._MOST_LEFT = 10**9

# where Python may keep no compiled modules, the hundreds of programs that tests start would compile symsim each: theirs lie apart from the checkout
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    os.environ.setdefault("PYTHONPYCACHEPREFIX", os.path.join(tempfile.gettempdir(), f"symsim-tests-{os.getuid()}"))

# every pass is checked after it has run (symsim/lowering/verify.py), in the programs that tests start too
os.environ.setdefault("SYMSIM_VERIFY", "1")

# the same cases in every run, so that a failure is of the change at hand; `--hypothesis-profile=fresh` draws new ones. How long a case takes is
# the machine's
_untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _untimed, derandomize=True, database=None)
settings.register_profile("fresh", _untimed)
settings.load_profile("same")

# KiB, as Linux counts what is resident of a process
_MUCH = 100_000
_resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Further cases of a test under `long_after(n)` are long: those beyond its first n."""
    seen: Counter[str] = Counter()
    for item in items:
        kept = item.get_closest_marker("long_after")
        if kept is not None:
            name = item.nodeid.partition("[")[0]
            seen[name] += 1
            if seen[name] > kept.args[0]:
                item.add_marker("long")


@pytest.fixture(autouse=True, scope="module")
def _room() -> Iterator[None]:
    """What the tests of a file left in cycles goes when they are over, where it is much: together they would leave gigabytes."""
    yield
    global _resident
    now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if now > _resident + _MUCH:
        gc.collect()
        _resident = now
