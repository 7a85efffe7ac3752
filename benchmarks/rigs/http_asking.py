"""Clients over HTTP that send frames to the identity network, one after the other, and go on if a request fails.

Each frame contains a number of its own, and the network may be the identity times its version: so an answer tells which
version computed it, or that it is wrong.
"""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tests.serving.identity_model import frame_of

ANSWER_S: Final = 20.0
_AGAIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server accepts frames on loopback. `head`: the beginning of a request's body, before the frame."""

    port: int
    path: str
    head: bytes = b""

    @classmethod
    def of_model(cls, port: int, model: str, shape: Sequence[int]) -> Address:
        """The address of a model by the Open Inference Protocol, with one input `x` as raw bytes."""
        binary = f'"parameters":{{"binary_data_size":{4 * int(np.prod(shape))}}}'
        tensor = f'{{"name":"x","shape":{list(shape)},"datatype":"FP32",{binary}}}'
        head = f'{{"inputs":[{tensor}],"parameters":{{"binary_data_output":true}}}}'
        return cls(port, f"/v2/models/{model}/infer", head.encode())


@dataclass(slots=True)
class Answer:
    """`version`: that computed it; None: it is an error."""

    sent_s: float
    answered_s: float
    version: int | None
    code: str = ""
    message: str = ""


class HttpClients:
    """Threads that keep a persistent connection each to one address, and open a new one if it breaks.

    `lost`: requests that ended without an answer. `errors`: answers without a result, by status. `wrong`: results of no
    version. `longest_s`: until an answer of any kind.
    """

    def __init__(self, address: Address, shape: Sequence[int], count: int) -> None:
        self.longest_s = 0.0
        self.answers: list[list[Answer]] = [[] for _ in range(count)]
        self.errors: Counter[int] = Counter()
        self.lost = self.wrong = 0
        self._address, self._shape = address, tuple(shape)
        self._numbers = itertools.count(1)  # the next of a count is one step of the interpreter
        self._counting, self._ending = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(answers,), daemon=True) for answers in self.answers]

    @property
    def all_answers(self) -> list[Answer]:
        return sorted((answer for answers in self.answers for answer in answers), key=lambda answer: answer.answered_s)

    @property
    def longest_gap_s(self) -> float | None:
        """Without a result for any of the clients; None: there were fewer than two results."""
        answers = self.all_answers
        return max((b.answered_s - a.answered_s for a, b in itertools.pairwise(answers)), default=None)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(2 * ANSWER_S)

    def _run(self, answers: list[Answer]) -> None:
        address = self._address
        headers = {"Content-Type": "application/octet-stream"}
        if address.head:
            headers["Inference-Header-Content-Length"] = str(len(address.head))
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=ANSWER_S)
        while not self._ending.is_set():
            frame, sent_s = frame_of(next(self._numbers), self._shape), time.monotonic()
            try:
                connection.request("POST", address.path, address.head + frame.tobytes(), headers)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()  # the next request opens it again
                with self._counting:
                    self.lost += 1
                self._ending.wait(_AGAIN_S)
                continue
            answered_s = time.monotonic()
            with self._counting:
                self.longest_s = max(self.longest_s, answered_s - sent_s)
                if answer.status != 200:
                    self.errors[answer.status] += 1
                else:
                    version = version_of(body[-frame.nbytes :], frame)
                    if version is None:
                        self.wrong += 1
                    else:
                        answers.append(Answer(sent_s, answered_s, version))
            if answer.status != 200:
                self._ending.wait(_AGAIN_S)
        connection.close()


def version_of(output: bytes, frame: np.ndarray[Any, Any]) -> int | None:
    """How many times the frame an output is; None: it is not a whole number of times the frame."""
    if len(output) != frame.nbytes:
        return None
    array = np.frombuffer(output, frame.dtype).reshape(frame.shape)
    times = np.rint(array.flat[0] / frame.flat[0])
    return int(times) if np.isfinite(times) and (array == times * frame).all() else None


def in_words(errors: Mapping[int, int]) -> str | int:
    """Counts of errors by status, such as `503 2, 504 1`; 0: none."""
    return ", ".join(f"{status} {count}" for status, count in sorted(errors.items())) or 0
