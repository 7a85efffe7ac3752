"""Inference engines: the only modules that import one. Shell."""

import os

# ONNX Runtime writes a device id and a telemetry database into the user's cache when it is imported, and its own
# switch comes too late to prevent that. A user who sets the variable keeps their choice.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
