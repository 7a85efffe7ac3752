"""Frames over HTTP with nothing but Python's standard library: `python examples/http_client.py` (docs/examples.md).

It speaks the Open Inference Protocol with its binary extension: the body of a request is a JSON header, and after it
the tensors' bytes; a field of the HTTP header says where the one ends. The daemon was started with `--http`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import random
import sys
from array import array
from typing import Any

HEADER_SIZE = "Inference-Header-Content-Length"


class HttpError(Exception):
    """The daemon has refused; its own words."""


def ask(connection: http.client.HTTPConnection, path: str) -> dict[str, Any]:
    connection.request("GET", path)
    response = connection.getresponse()
    body: dict[str, Any] = json.loads(response.read())
    if response.status != 200:
        raise HttpError(f"{response.status}: {body['error']}")
    return body


def infer(
    connection: http.client.HTTPConnection, model: dict[str, Any], values: array[float], deadline_ms: float
) -> tuple[dict[str, Any], dict[str, array[float]]]:
    """One frame: what the answer says, and its outputs by name. For models of FP32 with one input."""
    (tensor,) = model["inputs"]
    parameters = {"binary_data_size": len(values) * values.itemsize}
    header = json.dumps(
        {
            "inputs": [{**tensor, "shape": one_frame(model), "parameters": parameters}],
            "parameters": {"binary_data_output": True, "deadline_ms": deadline_ms},
        }
    ).encode()
    connection.request(
        "POST",
        f"/v2/models/{model['name']}/infer",
        header + little_endian(values).tobytes(),
        {"Content-Type": "application/octet-stream", HEADER_SIZE: str(len(header))},
    )
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise HttpError(f"{response.status}: {json.loads(body)['error']}")
    end = int(response.headers[HEADER_SIZE])
    answer = json.loads(body[:end])
    outputs = {}
    for output in answer["outputs"]:
        begin, end = end, end + output["parameters"]["binary_data_size"]
        outputs[output["name"]] = little_endian(array("f", body[begin:end]))
    return answer, outputs


def one_frame(model: dict[str, Any]) -> list[int]:
    """The shape of its first input. -1 at its beginning: a request may have several frames."""
    return [max(1, size) for size in model["inputs"][0]["shape"]]


def little_endian(values: array[float]) -> array[float]:
    """As the wire has it, or back."""
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description="Send frames of noise over HTTP.")
    parser.add_argument("model", nargs="?", default="squeezenet", help="its name, as the daemon has it")
    parser.add_argument("--address", default="127.0.0.1:8000", help="what the daemon was given as --http")
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--deadline-ms", type=float, default=10_000.0)
    options = parser.parse_args()
    connection = http.client.HTTPConnection(options.address)  # one connection for all: it is kept open
    try:
        model = ask(connection, f"/v2/models/{options.model}")
        shape = one_frame(model)
        values = array("f", (random.random() for _ in range(math.prod(shape))))
        for number in range(options.frames):
            _, outputs = infer(connection, model, values, options.deadline_ms)
            for name, output in outputs.items():
                largest = max(range(len(output)), key=output.__getitem__)
                print(f"frame {number}: {name} has {len(output)} values, the largest is number {largest}")
    except (HttpError, OSError) as error:
        sys.exit(f"http_client: {error}")
    finally:
        connection.close()


if __name__ == "__main__":
    main()
