"""What the blocking client and that for asyncio have in common: all but how they wait. Shell."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

from shisha_rt.client.lent_memory import LentMemory
from shisha_rt.client.link import TIMEOUT_S, Context, Link, Patience
from shisha_rt.errors import BadInput, Error
from shisha_rt.protocol.conversation import FrameTerms
from shisha_rt.protocol.exceptions import error_for, malformed
from shisha_rt.protocol.keys import SecretKey, ServerKey, client_keys


class ConnectedClient:
    """The client of one daemon."""

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        share: bool = True,
        model: str | None = None,
        context: Context | None = None,
        secret_key: SecretKey | None = None,
        server_key: ServerKey | None = None,
        silence_s: float = math.inf,
    ) -> None:
        """Connect without waiting: the first call waits for the daemon to be there.

        `timeout_s`: the default timeout of a call. `model`: its name, if the address serves several. `share`: send
        large tensors through shared memory, and all else over a direct line, if the daemon is on this host. `context`:
        a pyzmq context to use instead of `zmq.Context.instance()`. A daemon that other hosts can reach asks for keys:
        `secret_key` is the client's secret file (NAME.key_secret) or `KeyPair`, `server_key` the daemon's public key or
        its file. `silence_s`: for calls with long timeouts; a daemon that says nothing at all for so long, while it is
        probed once a second, counts as lost (`Unavailable`). Keep it above the time that sending the largest requests
        takes.
        """
        if not silence_s > 0:
            raise malformed(f"silence_s is {silence_s}; expected seconds above 0, or inf")
        try:
            keys = client_keys(secret_key, server_key)
        except BadInput as error:
            raise error_for(Error.KEYS_UNUSABLE, str(error)) from None
        self._link = Link(endpoint, context, keys, LentMemory() if share else None, model, silence_s)
        self._timeout_s = timeout_s
        self._begin()

    def _begin(self) -> None:
        """Set up what this kind of client needs."""

    @property
    def sharing(self) -> bool:
        """Whether memory is shared with the daemon; if not, large tensors are sent as bytes.

        False before the first call, with a daemon on another host, and for a model without large tensors.
        """
        return self._link.sharing

    def _patience(self, timeout_s: float | None) -> Patience:
        return Patience(self._timeout_s if timeout_s is None else timeout_s)


ClientT = TypeVar("ClientT", bound=ConnectedClient)


class FrameStream(Generic[ClientT]):
    """An ordered series of frames of a client, up to `in_flight` of them at once, each sent with `terms`."""

    def __init__(self, client: ClientT, terms: FrameTerms, in_flight: int, timeout_s: float | None) -> None:
        if not in_flight >= 1:  # nor is nan
            raise ValueError(f"in_flight {in_flight}; expected 1 or more")
        self.name = client._link.conversation.new_stream() if terms.stream is None else terms.stream
        self._client = client
        self._in_flight = in_flight
        self._terms = terms._replace(stream=self.name)
        self._timeout_s = timeout_s
        self._begin()

    def _begin(self) -> None:
        """Set up what this kind of stream needs."""
