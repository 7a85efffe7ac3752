"""A remote worker that computes nothing: it copies each part's tensor into a slot and sends it back.

Settings: `way`, one of `hop_process.WAYS`, and `address` to listen at; or `fd`, the local channel's other end. A
worker on the daemon's host (`local`) leaves the tensor where it is.
"""

from __future__ import annotations

import os
import select
import socket
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.rigs.child_process import Child, say
from benchmarks.rigs.rival_carriers import AnyCarrier, PlainZmqCarrier, TcpCarrier, TlsCarrier, far_context
from shisha_rt.messages import worker as messages
from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.process.parent import die_with
from stages.far import messages as far
from stages.far.carrier import Carried, CarrierBroken, FarEnd

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


def child(**settings: Any) -> Child:
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
