"""Networks that the `onnx` package does not ship, each written from its publication, with zeros for weights. Pure."""
