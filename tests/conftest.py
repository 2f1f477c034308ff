"""What every test process starts with."""

import os
import signal

# a shell starts what runs in the background with interrupts ignored, and the programs that tests start would inherit it
signal.signal(signal.SIGINT, signal.default_int_handler)

# every pass is checked after it has run (symsim/lowering/verify.py), in the programs that tests start too
os.environ.setdefault("SYMSIM_VERIFY", "1")
