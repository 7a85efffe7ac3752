"""Other servers, as a user would set them up; each module runs under its server's own interpreter.

Modules import neither the project nor its dependencies: a server's interpreter has the server, numpy and ONNX Runtime.
"""
