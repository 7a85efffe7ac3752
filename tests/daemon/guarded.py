"""A gateway that asks for keys, with a turn of the daemon's loop for it, and clients with real sockets."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import zmq

from shisha_rt.daemon.front.gateway import Arrived, Gateway
from shisha_rt.daemon.front.regions import Regions
from shisha_rt.daemon.front.security import Security
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.access import AccessList, Permission, User
from shisha_rt.protocol.keys import KeyPair, new_pair
from shisha_rt.protocol.limits import Limits
from shisha_rt.protocol.signature import Signature
from tests.waiting import PATIENCE_S, until

ALICE, MALLORY, BOSS, STRANGER, DAEMON = (new_pair() for _ in range(5))
USERS = (
    User("alice", public_key=ALICE.public),
    User("mallory", public_key=MALLORY.public),
    User("boss", Permission.OPERATOR, BOSS.public),
)


class Guarded:
    """`arrived`: what has been accepted and not been answered, in order."""

    def __init__(self, *users: User) -> None:
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        signature = Signature("m", (Tensor("x", (1, 300), "FP32"),), (Tensor("y", (1, 300), "FP32"),))
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        limits = Limits(max_message_bytes=67_000, max_answer_bytes=1_200, max_header_bytes=64_000)
        self.security = Security(DAEMON, AccessList(users or USERS), self._refuse)
        self.regions = Regions(16, 1 << 20)
        self.gateway = Gateway(
            self.context, "tcp://127.0.0.1:0", signature, limits, self.regions, self._count, self.security
        )
        self.clients: list[zmq.Socket[bytes]] = []
        self.arrived: list[Arrived] = []
        self.gateway.connections.stirred()

    def _count(self, name: str) -> None:
        self.counts[name] += 1

    def _refuse(self, reason: str) -> None:
        self.refused[reason] += 1

    def turn(self) -> None:
        list(self.security.receive(self.gateway.connections.new_user_id))
        self.arrived += self.gateway.receive()
        self.gateway.tend(time.monotonic())

    def until(self, done: Callable[[], object]) -> None:
        until(done, every_s=1e-3, meanwhile=self.turn)

    def client(
        self, keys: KeyPair | None, *, server: str = DAEMON.public, routing_id: bytes | None = None
    ) -> zmq.Socket[bytes]:
        client = self.context.socket(zmq.DEALER)
        self.clients.append(client)
        client.set(zmq.LINGER, 0)
        client.set(zmq.RECONNECT_IVL, -1)
        client.set(zmq.RCVTIMEO, int(1e3 * PATIENCE_S))
        client.set(zmq.SNDTIMEO, int(1e3 * PATIENCE_S))
        if routing_id is not None:
            client.set(zmq.IDENTITY, routing_id)
        if keys is not None:
            client.set(zmq.CURVE_PUBLICKEY, keys.public.encode())
            client.set(zmq.CURVE_SECRETKEY, keys.secret.encode())
            client.set(zmq.CURVE_SERVERKEY, server.encode())
        client.connect(self.gateway.endpoint)
        return client

    def leave(self, client: zmq.Socket[bytes]) -> None:
        self.clients.remove(client)
        client.close()

    def ask(self, client: zmq.Socket[bytes], request_id: str, op: str = "server_live", **arguments: Any) -> None:
        client.send_json({"op": op, "id": request_id, **arguments})

    def accept(self, client: zmq.Socket[bytes], request_id: str) -> Arrived:
        """Ask, and have the request accepted; it is not answered."""
        before = len(self.arrived)
        self.ask(client, request_id)
        self.until(lambda: len(self.arrived) > before)
        assert self.arrived[-1].request.id == request_id
        return self.arrived[-1]

    def answer_to(self, client: zmq.Socket[bytes]) -> dict[str, Any]:
        """The header of the next message that comes to a client."""
        self.until(lambda: client.poll(0))
        header = client.recv_json()
        assert isinstance(header, dict)
        return header

    def close(self) -> None:
        self.gateway.close()
        self.context.destroy(linger=0)
