"""For all tests: what must be set before anything is imported."""

import os
import signal

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # as stages.engines does, for tests that use the engine directly

# A job that a shell starts in the background ignores SIGINT, and so would everything that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
