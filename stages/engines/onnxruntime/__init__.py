"""ONNX Runtime: its form of a model, cuts of that, sessions and their profiler. Shell."""
