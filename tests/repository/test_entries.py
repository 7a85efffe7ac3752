"""Options of several models: each model gets the sizes of inputs and dimensions that it has."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from shisha_rt.core.dealer import Terms
from shisha_rt.daemon.settings import Settings, check_built
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.repository.entries import ModelEntry, check_least, entries_of, identity_of
from tests.wording import raised


def write(folder: Path, name: str, **inputs: list[str | int]) -> str:
    """A model that passes its first input on."""
    ends = [helper.make_tensor_value_info(*end) for end in ((n, TensorProto.FLOAT, s) for n, s in inputs.items())]
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Sum", [*inputs], ["out"])], name, ends, [output])
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return str(path)


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    return [write(tmp_path, "a", images=["n", 3], mask=["n", 3]), write(tmp_path, "b", words=["length"])]


def sizes(sources: list[str], **given: Any) -> list[tuple[Any, Any]]:
    return [(entry.settings.shape, entry.settings.dims) for entry in entries_of(sources, given)[1]]


def test_sizes_go_to_the_models_that_have_the_name(sources: list[str]) -> None:
    assert sizes(sources, shape=({"images": (2, 3)},), dims={"length": 7}) == [
        (({"images": (2, 3)},), {}),
        ((), {"length": 7}),
    ]


def test_shapes_of_one_model_do_not_multiply_those_of_another(sources: list[str]) -> None:
    shapes = tuple({"images": (count, 3), "words": (5,)} for count in (1, 2))
    assert sizes(sources, shape=shapes) == [(({"images": (1, 3)}, {"images": (2, 3)}), {}), (({"words": (5,)},), {})]


@pytest.mark.parametrize("given", [{"shape": ({"image": (1, 3)},)}, {"dims": {"breadth": 7}}])
def test_a_name_that_no_model_has_is_refused(sources: list[str], given: dict[str, Any]) -> None:
    with raised(BadInput, Error.WRONG_SIZES):
        entries_of(sources, given)


def test_sizes_of_a_daemon_file_stay_where_none_is_given(tmp_path: Path, sources: list[str]) -> None:
    file = tmp_path / "daemon.toml"
    tables = [
        f"[[model]]\nmodel = {source!r}\ndims = {dims}\n" for source, dims in zip(sources, ("{n=2}", "{}"), strict=True)
    ]
    file.write_text("".join(tables))
    assert sizes([str(file)], dims={"length": 7}) == [((), {"n": 2}), ((), {"length": 7})]


@pytest.mark.parametrize("given", [{"name": "c"}, {"version": "2"}])
def test_a_name_or_version_for_all_models_is_refused(sources: list[str], given: dict[str, Any]) -> None:
    with raised(BadInput, Error.WRONG_OPTION):
        entries_of(sources, given)


def test_a_version_above_the_tables_is_that_of_each_model_that_says_none(tmp_path: Path, sources: list[str]) -> None:
    file = tmp_path / "daemon.toml"
    first, second = (f"[[model]]\nmodel = {source!r}\n" for source in sources)
    file.write_text(f'version = "7"\n{first}{second}version = "8"\n')
    assert [entry.version for entry in entries_of([str(file)], {})[1]] == ["7", "8"]


def test_no_model_has_at_least_more_places_than_at_most(tmp_path: Path, sources: list[str]) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text(f"[[model]]\nmodel = {sources[0]!r}\nleast = 2\nmost = 1\n")
    with pytest.raises(BadInput, match=r"model\[0\]\.most"):
        entries_of([str(file)], {})


def test_a_file_that_is_not_there_is_refused(tmp_path: Path, sources: list[str]) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text(f"[[model]]\nmodel = {sources[0]!r}\n[[model]]\nmodel = 'none.onnx'\n")
    for given in ([str(file)], [sources[0], "none.onnx"]):
        with raised(BadInput, Error.MODEL_UNREADABLE):
            entries_of(given, {})


def test_a_table_may_name_a_folder_of_versions(tmp_path: Path) -> None:
    folder = tmp_path / "repository" / "detector"
    for version in ("2", "10"):
        (folder / version).mkdir(parents=True)
        write(folder / version, "model", image=[1])
    file = tmp_path / "daemon.toml"
    table = "[[model]]\nmodel = 'repository/detector'\nshare = 2\n"
    file.write_text(table)
    (entry,) = entries_of([str(file)], {})[1]
    assert (entry.name, entry.version, entry.terms.share) == ("detector", "10", 2)
    assert (entry.folder, entry.settings.model) == (folder, str(folder / "10" / "model.onnx"))
    file.write_text(f"{table}version = '2'\n")
    (entry,) = entries_of([str(file)], {})[1]
    assert (entry.version, entry.settings.model) == ("2", str(folder / "2" / "model.onnx"))
    assert entry.in_folder().version == "10"
    file.write_text(f"{table}version = '3'\n")
    with pytest.raises(BadInput, match="2, 10"):
        entries_of([str(file)], {})


@pytest.mark.parametrize("name", ["x" * 257, "a\nb", "\udcff"])
def test_a_name_that_no_request_can_have_is_refused(tmp_path: Path, name: str) -> None:
    for settings in (Settings("net.onnx", name=name), Settings(f"{name}.onnx"), Settings("net.onnx", version=name)):
        with raised(BadInput, Error.WRONG_VALUE):
            check_built(settings, "net")


def test_a_file_whose_name_no_request_can_have_is_refused(tmp_path: Path) -> None:
    with raised(BadInput, Error.WRONG_VALUE):
        entries_of([write(tmp_path, "a\nb", images=[1])], {})


def test_options_of_the_host_and_of_its_models_go_where_they_belong(sources: list[str]) -> None:
    host, entries = entries_of(sources, {"endpoint": "tcp://127.0.0.1:1", "objective": "latency"})
    of_models = {(entry.settings.endpoint, entry.settings.objective) for entry in entries}
    assert (host.endpoint, of_models) == ("tcp://127.0.0.1:1", {(Settings("").endpoint, "latency")})


@pytest.mark.parametrize("name", ["a/b", "/", ".", ".."])
def test_a_name_that_is_no_part_of_a_path_is_refused(name: str) -> None:
    for settings in (Settings("net.onnx", name=name), Settings("net.onnx", version=name)):
        with raised(BadInput, Error.WRONG_VALUE):
            check_built(settings, "net")


@pytest.mark.parametrize(("least", "fits"), [((2, 0), True), ((1, 1), True), ((3, 0), False), ((2, 1), False)])
def test_models_have_no_more_places_to_themselves_than_there_are(
    tmp_path: Path, sources: list[str], least: tuple[int, ...], fits: bool
) -> None:
    file = tmp_path / "daemon.toml"
    pairs = zip(sources, least, strict=True)
    file.write_text("".join(f"[[model]]\nmodel = {source!r}\nleast = {count}\n" for source, count in pairs))
    entries = entries_of([str(file)], {})[1]
    places = tuple(Place(name, (core,), 1, 1, 1.0, 1, "ram") for core, name in enumerate(("one", "two")))
    with nullcontext() if fits else raised(BadInput, Error.WRONG_VALUE):
        check_least(entries, Machine("two", "two.toml", (), places))


def test_a_file_of_no_models_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text("model = []\n")
    with raised(BadInput, Error.WRONG_VALUE):
        entries_of([str(file)], {})


def test_an_empty_model_of_a_table_is_not_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    write(tmp_path / "1", "model", images=["n", 3])
    file = tmp_path / "daemon.toml"
    file.write_text('[[model]]\nmodel = ""\n')
    with raised(BadInput, Error.WRONG_VALUE):
        entries_of([str(file)], {})


@contextmanager
def repeated(change: Callable[[], object], times: int) -> Iterator[Callable[[], bool]]:
    """Repeat a change in a thread. Yields whether that has ended."""
    with ThreadPoolExecutor(1) as pool:
        repeating = pool.submit(lambda: [change() for _ in range(times)])
        yield repeating.done
        repeating.result()


def test_a_file_that_comes_and_goes_has_a_time_or_none(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    entry = ModelEntry("net", "1", Settings(str(file)), Terms())

    def come_and_go() -> None:
        file.touch()
        file.unlink()

    with repeated(come_and_go, 4000) as has_ended:
        while not has_ended():
            assert isinstance(identity_of(entry)["written"], int | None)


def test_a_version_that_is_renamed_and_removed_hides_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    (folder / "1").mkdir(parents=True)
    write(folder / "1", "model", image=[1])

    def come_and_go() -> None:
        (folder / "2").mkdir()
        (folder / "2" / "model.onnx").touch()
        (folder / "2").rename(folder / "3")
        shutil.rmtree(folder / "3")

    with repeated(come_and_go, 250) as has_ended:
        while not has_ended():
            (entry,) = entries_of([str(tmp_path)], {})[1]
            assert entry.version in ("1", "2", "3")
