"""What Ray starts on a host, without Ray: has it the model, gets it, or says in one line why not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import zmq

pytest.importorskip("ray", reason="needs Ray: the extra `ray`")

from shisha_rt.cache import LIST_FILE, cache_folder, publish
from shisha_rt.hosts.actor import FarHost
from shisha_rt.hosts.hosts import about_this_host, why_unfit
from shisha_rt.hosts.model_files import ModelManifest, manifest_of
from shisha_rt.measure.compile import compile_model, engine_key
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages.worker import FarUp, WorkerConfig
from shisha_rt.model.zoo import resolve_model
from tests.serving.identity_model import write_identity_model
from tests.wording import says


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Compiled, Path]]:
    """A model, and the cache that has it."""
    folder = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield compile_model(resolve_model(str(write_identity_model(folder)), lambda _: None)), folder / "cache"


@pytest.fixture(autouse=True)
def compiled(compiled_once: tuple[Compiled, Path]) -> Iterator[Compiled]:
    """In a cache that is as it was again after the test."""
    model, cache = compiled_once
    shutil.copytree(cache, cache.with_name("kept"))
    yield model
    shutil.rmtree(cache)
    cache.with_name("kept").rename(cache)


def encoded(manifest: ModelManifest) -> bytes:
    return msgspec.json.encode(manifest)


def manifest_here(compiled: Compiled) -> ModelManifest:
    return manifest_of(compiled, engine_key())


def test_it_says_what_host_it_is_on() -> None:
    address, about = FarHost().about()
    assert address.count(".") == 3
    assert why_unfit(about_this_host(), about) is None


def test_a_host_that_has_the_model_lacks_nothing(compiled: Compiled) -> None:
    manifest = encoded(manifest_here(compiled))
    assert FarHost().lacking(manifest) == []
    assert FarHost().bring(manifest, []) == ""


def test_a_host_with_another_engine_lacks_nothing_but_the_cleaned_model(compiled: Compiled) -> None:
    manifest = encoded(manifest_of(compiled, "another kind"))
    assert FarHost().lacking(manifest) == []
    shutil.rmtree(compiled.engine_folder)
    assert FarHost().lacking(manifest) == []
    shutil.rmtree(compiled.model_folder)
    assert FarHost().lacking(manifest) == [0]


def test_a_host_without_it_lacks_it(compiled: Compiled) -> None:
    manifest = encoded(manifest_here(compiled))
    shutil.rmtree(compiled.engine_folder)
    assert FarHost().lacking(manifest) == [0]


def test_another_kind_of_processor_compiles_it_itself(compiled: Compiled) -> None:
    manifest = encoded(manifest_of(compiled, "another kind"))
    shutil.rmtree(compiled.engine_folder)
    assert FarHost().bring(manifest, []) == ""
    assert compiled.engine_folder.exists()


def test_another_form_of_it_is_refused(compiled: Compiled) -> None:
    original = manifest_of(compiled, "another kind")
    (engine,) = original.engines
    files = tuple(msgspec.structs.replace(file, sha256=64 * "0") for file in engine.files)
    manifest = encoded(msgspec.structs.replace(original, engines=(msgspec.structs.replace(engine, files=files),)))
    assert "identity: on this processor" in FarHost().bring(manifest, [])


def test_a_host_that_has_it_in_another_form_already_is_refused(compiled: Compiled) -> None:
    """What is published is not fetched again, and stages of the two would not fit each other."""
    manifest = encoded(manifest_here(compiled))
    folder = compiled.engine_folder
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != LIST_FILE}
    shutil.rmtree(folder)
    files["index.json"] += b" "

    def build(target: Path) -> None:
        for name, data in files.items():
            (target / name).write_bytes(data)

    publish(folder, build)
    far = FarHost()
    assert far.lacking(manifest) == [0]
    assert far.bring(manifest, []) == says(f"… another form already: remove {folder} there")


def test_a_cache_that_cannot_be_written_is_said_in_one_line(compiled: Compiled) -> None:
    manifest = encoded(manifest_here(compiled))
    shutil.rmtree(cache_folder())
    cache_folder().write_text("no folder")
    far = FarHost()
    assert far.lacking(manifest) == [0]
    said = far.bring(manifest, [])
    assert "cannot be made" in said
    assert "\n" not in said


def test_names_that_lead_out_of_the_cache_are_refused(compiled: Compiled) -> None:
    original = manifest_here(compiled)
    (engine,) = original.engines
    outside = msgspec.structs.replace(engine, path=("..", *engine.path))
    manifest = encoded(msgspec.structs.replace(original, engines=(outside,)))
    assert FarHost().bring(manifest, []) == says("… model is called '..': …")


def worker_of(incarnation: int) -> bytes:
    config = WorkerConfig("far1", 0, 1, (), 1, incarnation, -1, (), -1, 2, os.getpid())
    return msgspec.json.encode(config)


@pytest.fixture
def far(compiled: Compiled) -> FarHost:
    """One that has the model."""
    far = FarHost()
    assert far.bring(encoded(manifest_here(compiled)), []) == ""
    return far


NEAR_KEY = zmq.curve_keypair()[0].decode()


def test_a_far_end_listens_until_its_relay_is_gone(far: FarHost) -> None:
    line, reason = far.start(7, worker_of(7), NEAR_KEY)
    assert reason == ""
    assert msgspec.json.decode(line, type=FarUp).endpoint.startswith(f"tcp://{far.about()[0]}:")
    far.end(7)
    assert far.wait(7) == "killed by signal 9 (SIGKILL)"
    far.end(7)


def test_far_ends_beside_each_other_end_by_themselves(far: FarHost) -> None:
    for incarnation in (1, 2):
        assert far.start(incarnation, worker_of(incarnation), NEAR_KEY)[1] == ""
    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(far.wait, incarnation) for incarnation in (1, 2))
        far.end(2)
        assert second.result() == "killed by signal 9 (SIGKILL)"
        assert not first.done()
        far.end(1)
        assert first.result() == "killed by signal 9 (SIGKILL)"


def test_a_far_end_that_cannot_begin_says_why(compiled: Compiled, far: FarHost) -> None:
    shutil.rmtree(compiled.engine_folder)
    line, reason = far.start(3, worker_of(3), NEAR_KEY)
    assert line == ""
    assert reason.startswith("the far end of far1: [Errno 2] No such file or directory")
