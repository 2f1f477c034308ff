"""What every test process starts with."""

import gc
import os
import signal

from hypothesis import HealthCheck, settings

from symsim.grid import collection

# a shell starts what runs in the background with interrupts ignored, and the programs that tests start would inherit it
signal.signal(signal.SIGINT, signal.default_int_handler)

# definitions and formulas stay as long as a test's result does: going through them all again and again is a tenth of the tests' time
gc.set_threshold(100_000, 20, 20)
# what a test's sweep leaves in cycles is little, and a walk through all that other tests keep takes seconds
collection._MOST_LEFT = 10**9

# every pass is checked after it has run (symsim/lowering/verify.py), in the programs that tests start too
os.environ.setdefault("SYMSIM_VERIFY", "1")

# the same cases in every run, so that a failure is of the change at hand; `--hypothesis-profile=fresh` draws new ones. How long a case takes is
# the machine's
_untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _untimed, derandomize=True, database=None)
settings.register_profile("fresh", _untimed)
settings.load_profile("same")
