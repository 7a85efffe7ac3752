"""What Ray raises, in a line that says why."""

from __future__ import annotations

import pytest

pytest.importorskip("ray", reason="needs Ray: the extra `ray`")

from ray.exceptions import RayActorError, RayTaskError

from shisha_rt.errors import BadInput, Failure
from shisha_rt.hosts.ray_cluster import in_a_line
from tests.wording import says

TRACEBACK = '\x1b[36mray::FarHost.lacking()\x1b[39m (pid=1)\n  File "actor.py", line 3\nshisha_rt.errors.Failure: no'


def raised_there(cause: Exception) -> BaseException:
    """As it comes out of a future of an actor's method."""
    error: BaseException = RayTaskError("FarHost.lacking", TRACEBACK, cause).as_instanceof_cause()
    return error


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        (Failure("no home folder is known:\n  set XDG_CACHE_HOME"), "… folder is known: set XDG_CACHE_HOME"),
        (BadInput("it is none"), "it is none"),
        (PermissionError(13, "Permission denied", "/x"), "PermissionError: [Errno 13] Permission denied: '/x'"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError(500 * "x"), f"ValueError: {388 * 'x'}"),
    ],
)
def test_what_a_method_raised_is_said_without_its_traceback(cause: Exception, line: str) -> None:
    assert in_a_line(raised_there(cause)) == says(line)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            RuntimeError("The actor died unexpectedly.\n\tclass_name: X\nThe actor died because its node has died."),
            "The actor died …",
        ),
        (
            RayActorError(error_msg="The actor is dead because all references were removed.\n  x"),
            "The actor is …",
        ),
        (RuntimeError("a\n ModuleNotFoundError: No module named 'y'\nb"), "ModuleNotFoundError: No module named 'y'"),
        (ConnectionError(" one\n\n two "), "one two"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_other_errors_have_a_paragraph_that_says_why(error: BaseException, line: str) -> None:
    assert in_a_line(error) == says(line)
