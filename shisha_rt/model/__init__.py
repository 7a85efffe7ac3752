"""From an ONNX file to a graph, its layers, and the index of its cuts; the zoo of networks. Pure."""
