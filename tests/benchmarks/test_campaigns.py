"""What campaigns call a broken promise, by answers that were made up."""

from __future__ import annotations

import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from benchmarks.rigs.http_asking import Address, Answer, HttpClients, version_of
from benchmarks.robust.campaign import settled
from benchmarks.robust.campaign_models import Change, broken_versions
from tests.serving.identity_model import SHAPE, Array, frame_of
from tests.waiting import until

CHANGES = [Change(0, -math.inf, 1), Change(10, 12, 2), Change(20, 21, 1)]


def answers(*versions: tuple[float, int]) -> list[Answer]:
    """Of frames that were sent then, and answered a tenth of a second later."""
    return [Answer(sent_s, sent_s + 0.1, version) for sent_s, version in versions]


def test_each_version_in_its_time_is_right() -> None:
    assert broken_versions(answers((1, 1), (11, 1), (11.5, 2), (12.3, 2), (20.5, 2), (20.6, 1), (30, 1)), CHANGES) == 0


def test_the_version_before_is_wrong_after_an_answer_of_the_new_one_and_half_a_second_after_it_serves() -> None:
    assert broken_versions(answers((11, 2), (11.1, 1)), CHANGES) == 1
    assert broken_versions(answers((12.4, 1)), CHANGES) == 0
    assert broken_versions(answers((12.6, 1)), CHANGES) == 1


def test_a_version_is_wrong_before_it_was_asked_for_or_if_it_never_was() -> None:
    assert broken_versions(answers((9, 2), (9.95, 2), (13, 3)), CHANGES) == 2


def test_errors_are_of_no_version() -> None:
    assert broken_versions([Answer(13, 13.1, None, "UNAVAILABLE")], CHANGES) == 0


def test_memory_is_read_without_the_first_minute() -> None:
    readings = [(float(second), 10 if second < 60 else second) for second in range(461)]
    assert settled(readings) == [69, 164, 259, 355, 450]


FRAME = frame_of(7)


@pytest.mark.parametrize(
    ("output", "version"),
    [
        (FRAME, 1),
        (FRAME * 3, 3),
        (FRAME * 0, 0),
        (FRAME * 1.5, None),
        (FRAME * np.nan, None),
        (FRAME * np.inf, None),
        (FRAME[:, 1:], None),
    ],
    ids=["1", "3", "0", "1.5", "NaN", "infinite", "short"],
)
def test_an_answer_of_no_version_is_wrong(output: Array, version: int | None) -> None:
    assert version_of(output.tobytes(), FRAME) == version


class _Short(BaseHTTPRequestHandler):
    """Answers each request with four bytes."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(bytes(4))

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_clients_go_on_after_an_answer_that_is_too_short() -> None:
    """It ended their thread, and was counted nowhere."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Short) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        clients = HttpClients(Address(server.server_port, "/"), SHAPE, 1)
        clients.start()
        until(lambda: clients.wrong > 1)
        clients.finish()
        server.shutdown()
    assert clients.all_answers == []
