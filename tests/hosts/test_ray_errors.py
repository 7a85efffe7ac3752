"""What Ray raises, in a line that says why."""

from __future__ import annotations

import pytest

pytest.importorskip("ray", reason="needs Ray: the extra `ray`")

import ray
from ray.exceptions import RayActorError, RayTaskError

from shisha_rt.errors import BadInput, Failure
from shisha_rt.hosts import messages as cm
from shisha_rt.hosts.ray_cluster import LOCAL, Unable, in_a_line, join_cluster
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


def test_whatever_class_a_failed_start_is_of_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is not up within half a minute, as on a busy host, is a bare Exception."""

    def timed_out(**_: object) -> None:
        raise Exception("The current node timed out\nduring startup.")

    monkeypatch.setattr(ray, "init", timed_out)
    with pytest.raises(Unable) as raised:
        join_cluster(ray, cm.Reserve(LOCAL, {}), lambda _: None)
    assert str(raised.value) == says("… local: … timed out …")
