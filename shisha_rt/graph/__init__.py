"""ONNX file -> `Graph` -> layers. Pure but for `onnx_reader` and `zoo`."""
