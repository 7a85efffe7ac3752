"""For all tests: what must be set before anything is imported."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # as stages.engines does, for tests that use the engine directly
