"""Frames over HTTP with the stock client of Triton: `python examples/triton_client.py` (docs/examples.md).

`pip install 'tritonclient[http]'`; the daemon was started with `--http`. Nothing here knows of shisha-rt.
"""

from __future__ import annotations

import sys

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

address, name = sys.argv[1:] or ("127.0.0.1:8000", "squeezenet")
client = triton.InferenceServerClient(address, concurrency=4)
try:
    model = client.get_model_metadata(name)
    inputs = []
    for tensor in model["inputs"]:
        shape = [max(1, size) for size in tensor["shape"]]  # -1 first: a request may have several frames
        given = triton.InferInput(tensor["name"], shape, tensor["datatype"])
        given.set_data_from_numpy(np.random.rand(*shape).astype(triton_to_np_dtype(tensor["datatype"])))
        inputs.append(given)
    waiting = [client.async_infer(name, inputs) for _ in range(8)]  # four at once
    for request in waiting:
        answer = request.get_result()
        for output in model["outputs"]:
            print(output["name"], answer.as_numpy(output["name"]).shape)
except InferenceServerException as error:
    sys.exit(f"triton_client: {error}")
finally:
    client.close()
