"""Errors: a stable name for each kind, and the two exceptions with which a command fails.

Programs may rely on a kind's name; people find its meaning, its cause and its remedy under that name in
docs/troubleshooting.md. Names stay; messages, one line each for people, may change. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Self


class Code(StrEnum):
    """gRPC's codes, so that nobody has to learn new ones. A code says what the caller may do next.

    Correct the request (INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED), send less at once (RESOURCE_EXHAUSTED), wait
    (UNAVAILABLE, FAILED_PRECONDITION), or report it (INTERNAL).
    """

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"


class Error(StrEnum):
    """The kinds of errors. Each has one gRPC code."""

    code: Code

    def __new__(cls, name: str, code: Code) -> Self:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.code = code
        return kind

    # Any bad input, and any work that failed, if no kind below says more.
    BAD_INPUT = "bad_input", Code.INVALID_ARGUMENT
    FAILED = "failed", Code.INTERNAL

    # Files and options.
    UNREADABLE_FILE = "unreadable_file", Code.NOT_FOUND
    UNWRITABLE_FILE = "unwritable_file", Code.FAILED_PRECONDITION
    MALFORMED_FILE = "malformed_file", Code.INVALID_ARGUMENT
    WRONG_VALUE = "wrong_value", Code.INVALID_ARGUMENT
    WRONG_OPTION = "wrong_option", Code.INVALID_ARGUMENT
    OPTIONS_CLASH = "options_clash", Code.INVALID_ARGUMENT
    EXTRA_MISSING = "extra_missing", Code.FAILED_PRECONDITION
    CACHE_UNUSABLE = "cache_unusable", Code.FAILED_PRECONDITION
    WRONG_FRAMES = "wrong_frames", Code.INVALID_ARGUMENT

    # The model.
    MODEL_UNREADABLE = "model_unreadable", Code.NOT_FOUND
    UNKNOWN_NETWORK = "unknown_network", Code.NOT_FOUND
    NOT_ONNX = "not_onnx", Code.INVALID_ARGUMENT
    MODEL_UNSUPPORTED = "model_unsupported", Code.INVALID_ARGUMENT
    EXTERNAL_DATA = "external_data", Code.INVALID_ARGUMENT
    UNKNOWN_SIZES = "unknown_sizes", Code.INVALID_ARGUMENT
    WRONG_SIZES = "wrong_sizes", Code.INVALID_ARGUMENT
    OPEN_SHAPES = "open_shapes", Code.FAILED_PRECONDITION
    ENGINE_REFUSES = "engine_refuses", Code.FAILED_PRECONDITION

    # The machine and its devices.
    UNKNOWN_MACHINE = "unknown_machine", Code.NOT_FOUND
    MACHINE_UNFIT = "machine_unfit", Code.INVALID_ARGUMENT
    UNKNOWN_DEVICE_NAME = "unknown_device_name", Code.NOT_FOUND
    DEVICE_UNFIT = "device_unfit", Code.INVALID_ARGUMENT
    LEASES_UNUSABLE = "leases_unusable", Code.FAILED_PRECONDITION

    # Plans and what they are based on.
    COSTS_MISSING = "costs_missing", Code.FAILED_PRECONDITION
    NO_PLAN = "no_plan", Code.FAILED_PRECONDITION
    PLAN_UNFIT = "plan_unfit", Code.INVALID_ARGUMENT
    PLAN_REFUSED = "plan_refused", Code.FAILED_PRECONDITION
    SPACE_TOO_LARGE = "space_too_large", Code.INVALID_ARGUMENT

    # A daemon that starts, and its processes.
    ADDRESS_TAKEN = "address_taken", Code.FAILED_PRECONDITION
    EXPOSED_ADDRESS = "exposed_address", Code.INVALID_ARGUMENT
    EXPOSED_FILE = "exposed_file", Code.INVALID_ARGUMENT
    KEYS_THERE = "keys_there", Code.FAILED_PRECONDITION
    DAEMON_FAILED = "daemon_failed", Code.INTERNAL
    PLAN_UNPREPARED = "plan_unprepared", Code.INTERNAL
    WORKER_FAILED = "worker_failed", Code.INTERNAL
    CHILD_DIED = "child_died", Code.INTERNAL

    # Other hosts.
    CLUSTER_MISSING = "cluster_missing", Code.INVALID_ARGUMENT
    CLUSTER_UNFIT = "cluster_unfit", Code.FAILED_PRECONDITION
    CLUSTER_LOST = "cluster_lost", Code.UNAVAILABLE
    HOST_UNFIT = "host_unfit", Code.FAILED_PRECONDITION
    TRANSFER_FAILED = "transfer_failed", Code.INTERNAL

    # A request.
    MALFORMED_REQUEST = "malformed_request", Code.INVALID_ARGUMENT
    REQUEST_TOO_LARGE = "request_too_large", Code.INVALID_ARGUMENT
    OLD_ZMTP = "old_zmtp", Code.INVALID_ARGUMENT
    ID_IN_USE = "id_in_use", Code.INVALID_ARGUMENT
    UNKNOWN_OPERATION = "unknown_operation", Code.UNIMPLEMENTED
    UNKNOWN_MODEL = "unknown_model", Code.NOT_FOUND
    UNKNOWN_TENSOR = "unknown_tensor", Code.INVALID_ARGUMENT
    MISSING_TENSOR = "missing_tensor", Code.INVALID_ARGUMENT
    REPEATED_TENSOR = "repeated_tensor", Code.INVALID_ARGUMENT
    WRONG_DATATYPE = "wrong_datatype", Code.INVALID_ARGUMENT
    WRONG_SHAPE = "wrong_shape", Code.INVALID_ARGUMENT
    WRONG_SIZE = "wrong_size", Code.INVALID_ARGUMENT
    OUT_OF_SEQUENCE = "out_of_sequence", Code.INVALID_ARGUMENT
    NO_JSON_FORM = "no_json_form", Code.INVALID_ARGUMENT
    NOT_OFFERED = "not_offered", Code.UNIMPLEMENTED
    NOT_HERE = "not_here", Code.NOT_FOUND
    TOO_SLOW = "too_slow", Code.DEADLINE_EXCEEDED

    # Memory that a client shares.
    UNKNOWN_REGION = "unknown_region", Code.INVALID_ARGUMENT
    REGION_TOO_SMALL = "region_too_small", Code.INVALID_ARGUMENT
    REGION_REFUSED = "region_refused", Code.RESOURCE_EXHAUSTED
    SECOND_REGION = "second_region", Code.FAILED_PRECONDITION
    LINE_REFUSED = "line_refused", Code.RESOURCE_EXHAUSTED
    REGION_FAILED = "region_failed", Code.INTERNAL
    REGION_TAKEN = "region_taken", Code.FAILED_PRECONDITION
    REGION_NOT_REGISTERED = "region_not_registered", Code.NOT_FOUND
    SHARING_OFF = "sharing_off", Code.INVALID_ARGUMENT
    NO_SUCH_FILE = "no_such_file", Code.NOT_FOUND
    USER_UNKNOWN = "user_unknown", Code.PERMISSION_DENIED

    # A frame that was accepted, or would be at another time.
    TOO_MANY_FRAMES = "too_many_frames", Code.RESOURCE_EXHAUSTED
    TOO_MANY_BYTES = "too_many_bytes", Code.RESOURCE_EXHAUSTED
    TARGET_OUT_OF_REACH = "target_out_of_reach", Code.RESOURCE_EXHAUSTED
    DEADLINE_PASSED = "deadline_passed", Code.DEADLINE_EXCEEDED
    CANCELLED = "cancelled", Code.CANCELLED
    OUTPUT_TOO_LARGE = "output_too_large", Code.INTERNAL
    TASK_FAILED = "task_failed", Code.INTERNAL
    WORKER_DIED = "worker_died", Code.INTERNAL
    NO_WORKER = "no_worker", Code.UNAVAILABLE

    # The daemon.
    NOT_READY = "not_ready", Code.FAILED_PRECONDITION
    DRAINING = "draining", Code.UNAVAILABLE
    STOPPED = "stopped", Code.UNAVAILABLE
    MODEL_GONE = "model_gone", Code.UNAVAILABLE
    RECEIVER_GONE = "receiver_gone", Code.UNAVAILABLE

    # The connection to the daemon, and a client's use of it.
    NO_DAEMON = "no_daemon", Code.UNAVAILABLE
    NO_ANSWER = "no_answer", Code.DEADLINE_EXCEEDED
    CONNECTION_LOST = "connection_lost", Code.UNAVAILABLE
    BROKEN_ANSWER = "broken_answer", Code.INTERNAL
    NOT_A_DAEMON = "not_a_daemon", Code.UNAVAILABLE
    BAD_ENDPOINT = "bad_endpoint", Code.INVALID_ARGUMENT
    CLIENT_MISUSED = "client_misused", Code.FAILED_PRECONDITION
    TOO_MANY_OPEN = "too_many_open", Code.RESOURCE_EXHAUSTED
    TOO_MANY_CALLERS = "too_many_callers", Code.RESOURCE_EXHAUSTED

    # What operators ask for.
    ONE_MODEL = "one_model", Code.UNIMPLEMENTED
    LOAD_FAILED = "load_failed", Code.FAILED_PRECONDITION
    UNKNOWN_PLACE = "unknown_place", Code.NOT_FOUND
    PLACE_RELEASED = "place_released", Code.FAILED_PRECONDITION
    LAST_PLACE = "last_place", Code.FAILED_PRECONDITION
    UNKNOWN_DEVICE = "unknown_device", Code.NOT_FOUND
    TOO_FAST = "too_fast", Code.INVALID_ARGUMENT
    CORES_OVERBOOKED = "cores_overbooked", Code.FAILED_PRECONDITION
    NO_TUNER = "no_tuner", Code.FAILED_PRECONDITION
    UNKNOWN_STRATEGY = "unknown_strategy", Code.UNIMPLEMENTED
    STRATEGY_UNFIT = "strategy_unfit", Code.FAILED_PRECONDITION
    OBJECTIVE_UNFIT = "objective_unfit", Code.FAILED_PRECONDITION

    # Access control.
    UNKNOWN_KEY = "unknown_key", Code.PERMISSION_DENIED
    KEYS_MISSING = "keys_missing", Code.PERMISSION_DENIED
    KEYS_UNWANTED = "keys_unwanted", Code.UNAVAILABLE
    KEYS_UNUSABLE = "keys_unusable", Code.INVALID_ARGUMENT
    HANDSHAKE_BROKEN = "handshake_broken", Code.UNAVAILABLE
    UNKNOWN_TOKEN = "unknown_token", Code.PERMISSION_DENIED
    FOREIGN_CALLER = "foreign_caller", Code.PERMISSION_DENIED
    KEY_REVOKED = "key_revoked", Code.PERMISSION_DENIED
    NOT_AN_OPERATOR = "not_an_operator", Code.PERMISSION_DENIED
    OWN_ROUTING_ID = "own_routing_id", Code.INVALID_ARGUMENT


class BadInput(ValueError):
    """An option, argument or file of the user's cannot be used; nothing has been changed.

    The message becomes one line: what, where and what was expected. A command's exit status is 2.
    """

    def __init__(self, message: str, kind: str = Error.BAD_INPUT) -> None:
        super().__init__(" ".join(message.split()))
        self.kind = kind


@contextmanager
def about(subject: object) -> Iterator[None]:
    """Begin the message of any BadInput raised within with the `subject`, such as a file."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{subject}: {error}", error.kind) from error.__cause__


class Failure(RuntimeError):
    """The input was fine, but the work did not succeed; the message, one line, has the root cause. Exit status 1.

    `printed`: the command has printed its result all the same, and the result mentions the failure.
    """

    def __init__(self, message: str, kind: str = Error.FAILED, *, printed: bool = False) -> None:
        super().__init__(" ".join(message.split()))
        self.kind = kind
        self.printed = printed
