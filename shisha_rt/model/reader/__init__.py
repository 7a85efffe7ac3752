"""Reads an ONNX file and its weights into a cleaned graph. Shell."""
