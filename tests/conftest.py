"""What every test process starts with."""

import signal

# a shell starts what runs in the background with interrupts ignored, and the programs that tests start would inherit it
signal.signal(signal.SIGINT, signal.default_int_handler)
