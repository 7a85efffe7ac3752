"""ONNX file to graph to layers, and the zoo of networks. Pure."""
