"""A thousand changes of plan under the load of two clients: nothing is lost, doubled, mixed or out of order."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import zmq

from shisha_rt.protocol.header import encode_operation
from tests.serving.daemon_process import PATIENCE_MS, DaemonProcess
from tests.serving.identity_model import LAYERS
from tests.serving.load import Load, assert_kept
from tests.serving.page import scrape, values

PLACES: Final = ("fast0", "fast1", "slow0", "slow1")
SEED: Final = 20220712
BURST: Final = 12  # more than may wait at once

Stages = list[dict[str, Any]]


def random_stages(rng: random.Random) -> Stages:
    """One to four stages of at least one layer, each on a place of its own."""
    places = rng.sample(PLACES, rng.randint(1, len(PLACES)))
    cuts = sorted(rng.sample(range(LAYERS - 1), len(places) - 1))
    firsts, lasts = [0, *(cut + 1 for cut in cuts)], [*cuts, LAYERS - 1]
    return [
        {"first": first, "last": last, "places": [place]}
        for first, last, place in zip(firsts, lasts, places, strict=True)
    ]


def spoiled(rng: random.Random, stages: Stages) -> Stages:
    """The same with a mistake in it."""
    place = stages[0]["places"]
    return rng.choice(
        [
            [{**stages[0], "places": ["nowhere"]}, *stages[1:]],
            [*stages[:-1], {**stages[-1], "last": LAYERS}],
            [{**stages[0], "first": 1}, *stages[1:]],
            [{"first": 0, "last": 0, "places": place}, {"first": 1, "last": LAYERS - 1, "places": place, "after": []}],
        ]
    )


def proposals(rng: random.Random, count: int) -> Iterator[Stages]:
    for _ in range(count):
        stages = random_stages(rng)
        yield spoiled(rng, stages) if rng.random() < 0.05 else stages


class Proposer:
    """Fires plans over a connection of its own: mostly two under way, now and then a burst of more than may wait."""

    def __init__(self, endpoint: str) -> None:
        self.answers: dict[str, dict[str, Any]] = {}
        self._sent = 0
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(endpoint)

    def fire(self, plans: Iterator[Stages], rng: random.Random) -> None:
        for stages in plans:
            self._socket.send(encode_operation("plan_set", str(self._sent), {"stages": stages}))
            self._sent += 1
            bursting = self._sent % 100 > 100 - BURST
            while self._sent - len(self.answers) >= 2 and not bursting:
                self._collect()
        while len(self.answers) < self._sent:
            self._collect()

    def _collect(self) -> None:
        assert self._socket.poll(PATIENCE_MS), "a proposal was never settled"
        answer = json.loads(self._socket.recv())
        assert "error" not in answer
        assert answer["id"] not in self.answers
        self.answers[answer["id"]] = answer

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.long)])
def test_many_changes_under_the_load_of_two_clients(
    identity: Path, four_places: Path, tmp_path: Path, count: int
) -> None:
    rng = random.Random(SEED)
    with DaemonProcess(tmp_path, identity, "--machine", four_places) as daemon:
        first = daemon.control.plan()["epoch"]
        start_s = time.monotonic()
        with Load(daemon.endpoint, 0) as plain, Load(daemon.endpoint, 1, line=daemon.local_socket) as local:
            proposer = Proposer(daemon.endpoint)
            try:
                proposer.fire(proposals(rng, count), rng)
            finally:
                proposer.close()
            plain.wait_for_answers(1)
            local.wait_for_answers(1)
            seconds = time.monotonic() - start_s
        assert_kept(plain, local)
        answers = list(proposer.answers.values())
        ends = Counter(answer["outcome"] for answer in answers)
        assert len(answers) == count
        assert ends["live"] + ends["refused"] + ends["dropped"] == count
        assert ends["live"] > count / 2
        assert ends["refused"] > count / 50
        live = [answer["epoch"] for answer in answers if answer["outcome"] == "live"]
        assert len(set(live)) == len(live), "an epoch's number was used twice"
        assert plain.epochs | local.epochs <= {first, *live}
        assert len(plain.epochs | local.epochs) > ends["live"] / 4, "frames hardly flowed between the changes"
        assert all(answer["reason"] for answer in answers if answer["outcome"] != "live")
        counted = Counter(values(scrape(daemon.metrics), "shisha_plan_proposals_total", "outcome"))
        assert counted == ends + Counter(live=1)
        assert daemon.control.plan()["epoch"] == max(live)
        assert daemon.control.status()["frames"]["replayed"] == 0
        gap_s = max(plain.longest_gap_s, local.longest_gap_s)
        print(f"{dict(ends)} in {seconds:.1f} s, {plain.results + local.results} frames, longest gap {gap_s:.3f} s")
