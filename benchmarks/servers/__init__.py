"""Other servers of a network, as a user would set them up; each module runs under its server's own interpreter.

Nothing here imports the project or what only it needs: a server's interpreter has the server, numpy and ONNX Runtime.
"""
