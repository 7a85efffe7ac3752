"""A host has the same versions, or is refused with both and what mends it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace

import msgspec
import pytest

from shisha_rt import __version__
from shisha_rt.hosts import process
from shisha_rt.hosts.hosts import HostAbout, about_this_host, why_unfit
from shisha_rt.machine.machine import Remote
from tests.wording import says

HERE = HostAbout("1.2.3", "3.11", "1.20.0", "key", "this processor")


def test_one_that_is_alike_is_fit() -> None:
    assert why_unfit(HERE, msgspec.json.encode(HERE)) is None


@pytest.mark.parametrize(
    ("what", "value", "said"),
    [
        (
            "version",
            "1.2.4",
            "it has shisha-rt 1.2.4, and this host 1.2.3: pip install shisha-rt==1.2.3 there",
        ),
        ("python", "3.12", "it has Python 3.12, and this host 3.11: …"),
        (
            "engine_version",
            "1.19.2",
            "it has ONNX Runtime 1.19.2, and this host 1.20.0: pip install onnxruntime==1.20.0 there",
        ),
    ],
)
def test_each_other_version_is_refused(what: str, value: str, said: str) -> None:
    there = msgspec.structs.replace(HERE, **{what: value})
    assert why_unfit(HERE, msgspec.json.encode(there)) == says(said)


def test_the_first_thing_to_mend_is_said_first() -> None:
    """What is installed with shisha-rt may be another one then."""
    there = msgspec.structs.replace(HERE, version="2", python="3.12", engine_version="2")
    assert "shisha-rt" in str(why_unfit(HERE, msgspec.json.encode(there)))
    there = msgspec.structs.replace(there, version=HERE.version)
    assert "Python" in str(why_unfit(HERE, msgspec.json.encode(there)))


def test_one_whose_version_says_other_things_of_itself_is_refused_with_both_versions() -> None:
    """That ended the process of the cluster."""
    answer: Future[tuple[str, bytes]] = Future()
    answer.set_result(("10.0.0.7", b'{"version": "0.9", "cores": "four"}'))
    called = SimpleNamespace(future=lambda: answer)
    cluster = process.Cluster.__new__(process.Cluster)
    cluster._about = HERE
    hosted = process._Hosted("far", Remote(), 0)
    hosted.actor = SimpleNamespace(about=SimpleNamespace(remote=lambda: called))
    with pytest.raises(process._Unfit) as unfit:
        asyncio.run(cluster._come_up(hosted))
    assert hosted.address == "10.0.0.7"
    assert str(unfit.value) == "it has shisha-rt 0.9, and this host 1.2.3: pip install shisha-rt==1.2.3 there"


@pytest.mark.parametrize(("what", "value"), [("engine_key", "other"), ("processor", "another")])
def test_other_processors_are_fit(what: str, value: object) -> None:
    """They compile the model themselves, and are measured themselves."""
    assert why_unfit(HERE, msgspec.json.encode(msgspec.structs.replace(HERE, **{what: value}))) is None


def test_this_host_is_as_it_says() -> None:
    about = about_this_host()
    assert about.version == __version__
    assert about.python.count(".") == 1
    assert why_unfit(about, msgspec.json.encode(about)) is None
