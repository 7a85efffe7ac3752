"""Networks that the `onnx` package does not ship, each written down from its publication, with zeros for weights."""
