"""A process that sends parts to another host and receives them again: the proxy's half of a hop.

Settings: `way`, one of `WAYS`; `address` of the remote end, and `enter_far`, the command that starts it there; for ways
with Ray, `cluster`, its address, and the `resource` that the actor asks for. An order has `size_bytes`, `seconds` and
`in_flight`; the answer has `hops`, `frame_s` (wall time per hop) and `latency_s` (the median from sending a part until
it is back in its slot).

- `local`: a worker on the daemon's host. Only descriptors pass, as tensors are in shared memory.
- `zmq_curve`: the project's carrier. `zmq`: the same without keys. `tcp`: a plain connection. `tls`: the same with TLS.
- `ray_call`: an actor's method gets the tensor and returns it. `ray_objects`: both put it into the object store
  themselves, and pass what names it.

A tensor goes there, is copied into a slot, goes back, and is copied into its slot. The remote end, a process of its
own, computes nothing; its settings are `way`, and `address` to listen at or `fd`, the local channel's other end. A
worker on the daemon's host (`local`) leaves the tensor where it is.
"""

from __future__ import annotations

import json
import os
import select
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from benchmarks.rigs.child_process import Child, command_of, obey, quiet_output, say
from benchmarks.rigs.rival_carriers import (
    AnyCarrier,
    PlainZmqCarrier,
    TcpCarrier,
    TlsCarrier,
    far_context,
    near_context,
)
from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.messages import worker as messages
from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.process.parent import die_with
from stages.far import messages as far
from stages.far.carrier import Carried, CarrierBroken, FarEnd, NearEnd

# --- the far end ------------------------------------------------------------------------------------------------------


SLOTS: Final = 8
LARGEST_BYTES: Final = 4 << 20


def done_of(run: messages.Run) -> messages.Done:
    return messages.Done(run.part, service_s=0.0, cpu_s=0.0, waited_s=0.0)


def answer(carrier: AnyCarrier, carried: Carried, slots: np.ndarray[Any, Any]) -> None:
    message = far.TO_FAR.decode(carried.data)
    assert isinstance(message, far.RunFar), message
    tensors = []
    for tensor in carried.tensors:
        room = slots[message.run.part.slot, : tensor.nbytes]
        room[:] = np.frombuffer(tensor, np.uint8)
        tensors.append(room.data)
    carrier.send(far.FROM_FAR.encode(far.DoneFar(done_of(message.run), message.tensors, 0.0)), tensors)


def wait_for(carrier: AnyCarrier, poller: select.poll, timeout_s: float) -> None:
    """Wait until there may be something to receive, or room for what is to be sent."""
    if getattr(carrier, "waiting", False):
        for fd in carrier.filenos():
            poller.modify(fd, select.POLLIN | select.POLLOUT)
    poller.poll(timeout_s * 1e3)
    for fd in carrier.filenos():
        poller.modify(fd, select.POLLIN)


def poller_of(carrier: AnyCarrier) -> select.poll:
    poller = select.poll()
    for fd in carrier.filenos():
        poller.register(fd, select.POLLIN)
    return poller


def _serve_carrier(carrier: AnyCarrier) -> None:
    slots = np.zeros((SLOTS, LARGEST_BYTES), np.uint8)
    poller = poller_of(carrier)
    while True:
        carried = carrier.take()
        if carried is None:
            wait_for(carrier, poller, 0.2)
        else:
            answer(carrier, carried, slots)


def _far(settings: dict[str, Any]) -> Child:
    yield from ()
    die_with(os.getppid())
    try:
        match settings:
            case {"way": "local", "fd": int(fd)}:
                channel = Channel.inherited(fd)
                while True:
                    message = messages.TO_WORKER.decode(channel.wait())
                    assert isinstance(message, messages.Run), message
                    channel.send(messages.FROM_WORKER.encode(done_of(message)))
            case {"way": "zmq_curve", "address": str(address), "key": str(key)}:
                end = FarEnd(address, key)
                say(endpoint=end.endpoint, key=end.key)
                while not end.connected:
                    end.look()
                    time.sleep(1e-3)
                _serve_carrier(end)
            case {"way": "zmq", "address": str(address)}:
                plain = PlainZmqCarrier(listen=address)
                say(endpoint=plain.endpoint)
                _serve_carrier(plain)
            case {"way": "tcp", "address": str(address)}:
                listening = socket.create_server((address, 0))
                say(port=listening.getsockname()[1])
                _serve_carrier(TcpCarrier(listening.accept()[0]))
            case {"way": "tls", "address": str(address)}:
                with tempfile.TemporaryDirectory() as folder:
                    context, certificate = far_context(Path(folder))
                listening = socket.create_server((address, 0))
                say(port=listening.getsockname()[1], certificate=certificate)
                _serve_carrier(TlsCarrier(listening.accept()[0], context))
    except (CarrierBroken, ChannelBroken, EOFError, OSError):
        return
    raise ValueError(settings)


# --- the near end -----------------------------------------------------------------------------------------------------


WAYS: Final = ("local", "zmq_curve", "zmq", "tls", "tcp", "ray_call", "ray_objects")
_WARM_UP_HOPS: Final = 3 * SLOTS
_TURN_S: Final = 1.0


class Line(Protocol):
    def send(self, slot: int, tensor: memoryview) -> None: ...

    def wait(self) -> Sequence[tuple[int, memoryview | None]]:
        """Slots whose parts are back; with the tensor, if it is not in the slot yet."""
        ...


class CarrierLine:
    def __init__(self, carrier: AnyCarrier) -> None:
        self._carrier = carrier
        self._poller = poller_of(carrier)

    def send(self, slot: int, tensor: memoryview) -> None:
        run = far.RunFar(_run(slot), (far.TensorBeside("tensor"),))
        self._carrier.send(far.TO_FAR.encode(run), [tensor])

    def wait(self) -> Sequence[tuple[int, memoryview | None]]:
        while (carried := self._carrier.take()) is None:
            wait_for(self._carrier, self._poller, _TURN_S)
        done = far.FROM_FAR.decode(carried.data)
        assert isinstance(done, far.DoneFar), done
        return [(done.done.part.slot, carried.tensors[0])]


class ChannelLine:
    """A channel as in the daemon's loop, but waiting is in the call."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def send(self, slot: int, tensor: memoryview) -> None:
        self._channel.send(messages.TO_WORKER.encode(_run(slot)))

    def wait(self) -> Sequence[tuple[int, memoryview | None]]:
        done = messages.FROM_WORKER.decode(self._channel.wait())
        assert isinstance(done, messages.Done), done
        return [(done.part.slot, None)]


class RayLine:
    def __init__(self, cluster: str, resource: str, *, puts: bool) -> None:
        import ray

        ray.init(address=cluster, log_to_driver=False, logging_level="error")
        self._ray = ray
        self._puts = puts
        self._out: dict[Any, int] = {}
        actor = ray.remote(_Echo).options(num_cpus=0, resources={resource: 0.01})
        self._actor: Any = actor.remote(LARGEST_BYTES)

    def send(self, slot: int, tensor: memoryview) -> None:
        array = np.frombuffer(tensor, np.uint8)
        if self._puts:
            answer = self._actor.echo_object.remote([self._ray.put(array)], slot)
        else:
            answer = self._actor.echo.remote(array, slot)
        self._out[answer] = slot

    def wait(self) -> Sequence[tuple[int, memoryview | None]]:
        (answer,), _ = self._ray.wait(list(self._out), num_returns=1)
        slot = self._out.pop(answer)
        value = self._ray.get(answer)
        return [(slot, memoryview(self._ray.get(value[0]) if self._puts else value))]


class _Echo:
    def __init__(self, largest_bytes: int) -> None:
        self._slots = np.zeros((SLOTS, largest_bytes), np.uint8)

    def echo(self, tensor: Any, slot: int) -> Any:
        room = self._slots[slot, : tensor.nbytes]
        room[:] = tensor
        return room

    def echo_object(self, tensor: list[Any], slot: int) -> list[Any]:
        import ray

        return [ray.put(self.echo(ray.get(tensor[0]), slot))]


def _run(slot: int) -> messages.Run:
    return messages.Run(Descriptor(1, 1, 1, 0, 1, slot), 0)


def burst(line: Line, size_bytes: int, seconds: float, in_flight: int) -> dict[str, float]:
    slots = np.random.default_rng(0).integers(0, 255, (SLOTS, size_bytes), np.uint8)
    before = slots.copy()
    sent_s: dict[int, float] = {}
    latencies_s: list[float] = []
    free = list(range(SLOTS))
    hops, began_s, ends_s = 0, 0.0, float("inf")
    while sent_s or time.monotonic() < ends_s:
        while len(sent_s) < in_flight and time.monotonic() < ends_s:
            slot = free.pop()
            sent_s[slot] = time.monotonic()
            line.send(slot, slots[slot].data)
        for slot, tensor in line.wait():
            if tensor is not None:
                slots[slot] = np.frombuffer(tensor, np.uint8)
            now_s = time.monotonic()
            took_s = now_s - sent_s.pop(slot)
            free.append(slot)
            hops += 1
            if began_s:
                latencies_s.append(took_s)
            elif hops == _WARM_UP_HOPS:
                began_s, ends_s = now_s, now_s + seconds
    if not np.array_equal(slots, before):
        raise RuntimeError("what came back is not what was sent")
    took_s = time.monotonic() - began_s
    return {"hops": hops, "frame_s": took_s / len(latencies_s), "latency_s": statistics.median(latencies_s)}


def _start_far(settings: dict[str, Any], fd: int | None = None, **further: Any) -> dict[str, Any]:
    """Start the remote end; it ends with this process, when the connection is closed."""
    options = {"way": settings["way"], "address": settings["address"], "fd": fd, **further}
    command = [*settings["enter_far"], *command_of("benchmarks.rigs.hop_process", options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[] if fd is None else [fd])
    assert process.stdout is not None
    announced: dict[str, Any] = json.loads(process.stdout.readline()) if fd is None else {}
    return announced


def _line(settings: dict[str, Any]) -> Line:
    match settings["way"]:
        case "local":
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                _start_far(settings, theirs.fileno())
            return ChannelLine(Channel.inherited(ours.detach()))
        case "zmq_curve":
            end = NearEnd()
            announced = _start_far(settings, key=end.key)
            end.connect(announced["endpoint"], announced["key"])
            while not end.connected:
                end.look()
                time.sleep(1e-3)
            return CarrierLine(end)
        case "zmq":
            return CarrierLine(PlainZmqCarrier(connect=_start_far(settings)["endpoint"]))
        case "tcp":
            port = _start_far(settings)["port"]
            return CarrierLine(TcpCarrier(socket.create_connection((settings["address"], port))))
        case "tls":
            announced = _start_far(settings)
            connection = socket.create_connection((settings["address"], announced["port"]))
            return CarrierLine(TlsCarrier(connection, near_context(announced["certificate"])))
        case way:
            return RayLine(settings["cluster"], settings["resource"], puts=way == "ray_objects")


def child(**settings: Any) -> Child:
    if "enter_far" not in settings:
        return _far(settings)
    with quiet_output():
        line = _line(settings)
    return obey(partial(burst, line))
