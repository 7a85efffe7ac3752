"""What a program imports to use a daemon: `Client`, which blocks, and `AsyncClient`, for asyncio.

    with Client() as client:
        answer = client.infer(image)
        with client.stream("camera") as stream:
            for answer in stream.run(images):
                print(answer.output.argmax(), answer.compute_s)
        client.set_plan(Plan.chain([(0, 9, [["core0"], ["core1"]]), (10, 25, [["core2", "core3"]])]))

Both guarantee: a call returns a result or raises one `ShishaError`, and no request is ever sent twice. If the daemon is
lost, all requests in flight raise `Unavailable`; the caller decides whether to send them again. A client is for one
thread at a time (or one event loop); a program may have several clients.

Shell.
"""

from shisha_rt.client.asynchronous import AsyncClient, AsyncStream
from shisha_rt.client.blocking import Client, Stream
from shisha_rt.model.split import Split
from shisha_rt.plan.form import plan_of
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.protocol.exceptions import (
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    ShishaError,
    Timeout,
    Unavailable,
    Unimplemented,
)
from shisha_rt.protocol.frame_tensors import Answer, Array, Inputs

__all__ = [
    "Answer",
    "Array",
    "AsyncClient",
    "AsyncStream",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "FailedPrecondition",
    "Inputs",
    "Internal",
    "InvalidArgument",
    "NotFound",
    "PermissionDenied",
    "Plan",
    "ResourceExhausted",
    "ShishaError",
    "Split",
    "Stage",
    "Stream",
    "Timeout",
    "Unavailable",
    "Unimplemented",
    "plan_of",
]
