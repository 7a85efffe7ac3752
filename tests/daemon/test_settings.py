"""Daemon files: what they may say, and the one line that says what is wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from shisha_rt.daemon import settings as daemon_settings
from shisha_rt.daemon.settings import STRATEGIES, Settings, check_built, engine_of, read_settings
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.machine_file import parse_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.machine.precision import PERMITTED
from shisha_rt.placement.solver_names import STAGE_SOLVERS
from shisha_rt.plan.rate import ANY_OBJECTIVES
from shisha_rt.planner.strategies import SCHEMES
from tests.wording import raised


def _file(folder: Path, text: str) -> Path:
    path = folder / "daemon.toml"
    path.write_text(text)
    return path


def test_a_full_file(tmp_path: Path) -> None:
    text = """
    model = "net.onnx"
    machine = "board.toml"
    endpoint = "ipc:///tmp/x"
    metrics = "127.0.0.1:0"
    dims = { N = 8 }
    strategy = "seed"
    precision = "any"
    calibration = "frames.npz"
    solver = "als"
    objective = "latency"
    engine = "onnxruntime"
    replicate = false
    max_output_bytes = 2048
    shape = [{ x = [1, 3], z = [] }, { x = [1, 5], z = [] }]
    """
    settings = read_settings(_file(tmp_path, text))
    assert settings == Settings(
        str(tmp_path / "net.onnx"),
        str(tmp_path / "board.toml"),
        "ipc:///tmp/x",
        "127.0.0.1:0",
        {"N": 8},
        strategy="seed",
        precision="any",
        calibration=str(tmp_path / "frames.npz"),
        solver="als",
        objective="latency",
        engine="onnxruntime",
        replicate=False,
        max_output_bytes=2048,
        shape=({"x": (1, 3), "z": ()}, {"x": (1, 5), "z": ()}),
    )


def test_shipped_and_zoo_names_stay_names(tmp_path: Path) -> None:
    settings = read_settings(_file(tmp_path, 'model = "zoo:squeezenet"\nmachine = "demo"'))
    assert (settings.model, settings.machine) == ("zoo:squeezenet", "demo")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model = ", "not TOML"),
        ("x = " + 100_000 * "[", "nested too deeply"),
        ("", "model is missing"),
        ("model = 3", "model = 3: expected text"),
        ('model = "a"\n[[shape]]\nx = [1, 0]', "shape[0].x[1] = 0"),
        ('model = "a"\nshape = "x=1x3"', 'shape = "x=1x3": expected a list'),
        ('model = "a"\nmodle = 1', "modle = 1: unknown key"),
        ('model = "a"\nreplicate = "no"', 'replicate = "no"'),
        ('model = "a"\nsolver = 3', "solver = 3: expected text"),
        ('model = "a"\ndims = { N = 0 }', "dims.N = 0: expected"),
        ('model = "a"\ndims = { N = "x" }', "whole number"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(BadInput, match=r"daemon\.toml") as caught:
        read_settings(_file(tmp_path, text))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_one_that_is_no_text(tmp_path: Path) -> None:
    with raised(BadInput, Error.UNREADABLE_FILE, match="No such file"):
        read_settings(tmp_path / "none.toml")
    (tmp_path / "daemon.toml").write_bytes(b"\xff\xfe")
    with raised(BadInput, Error.MALFORMED_FILE, match="not UTF-8"):
        read_settings(tmp_path / "daemon.toml")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings("m", strategy="annealing"), 'strategy = "annealing"'),
        (Settings("m", precision="bf16"), 'precision = "bf16"'),
        (Settings("m", precision=""), 'precision = ""'),
        (Settings("m", solver="milp"), 'solver = "milp"'),
        (Settings("m", engine="tvm"), 'engine = "tvm"'),
        (Settings("m", objective="power"), 'objective = "power"'),
        (Settings("m", max_worker_bytes=1000), "max_worker_bytes = 1000"),
        (Settings("m", hang_s=0.0), "hang_s = 0"),
        (Settings("m", name=""), 'name = ""'),
        (Settings("m", version=""), 'version = ""'),
        (Settings("m", leases="a\udcff"), 'leases = "a\udcff": expected UTF-8'),
        (Settings("m", plan="a\0"), 'plan = "a\\u0000": expected UTF-8'),
        (Settings("m", http=("1", "unix:a\udcff")), 'http = "unix:a\udcff": expected UTF-8'),
        (Settings("m", hang_s=math.nan), "hang_s = "),
        (
            Settings("m", strategy="opseq", objective="throughput"),
            'objective = "throughput": strategy opseq knows',
        ),
        (
            Settings("m", strategy="forkjoin", layers="heavy"),
            'layers = "heavy": strategy forkjoin takes',
        ),
    ],
)
def test_values_that_a_key_cannot_have(settings: Settings, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_built(settings, "m.toml")
    assert str(caught.value).startswith(f"m.toml: {expected}")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("precision", PERMITTED)
@pytest.mark.parametrize("solver", STAGE_SOLVERS)
@pytest.mark.parametrize("objective", ANY_OBJECTIVES)
def test_values_that_it_can_have(strategy: str, precision: str, solver: str, objective: str) -> None:
    aim = "latency" if strategy in SCHEMES else objective
    check_built(Settings("m", strategy=strategy, precision=precision, solver=solver, objective=aim), "m.toml")


def of_file(text: str) -> Machine:
    return parse_machine(text, name="m", source="m.toml")


CORE = '[[place]]\nname = "a"\ncores = [0]\n'


@pytest.mark.parametrize(
    ("in_file", "asked", "expected"),
    [
        (None, None, "auto"),
        ("openvino", None, "openvino"),
        ("openvino", "auto", "auto"),
        ("onnxruntime", None, "onnxruntime"),
        ("onnxruntime", "openvino", "openvino"),
    ],
)
def test_the_engine_is_the_option_s_or_else_the_machine_file_s(
    in_file: str | None, asked: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_settings, "installed_engines", lambda: {"onnxruntime": "1", "openvino": "2"})
    machine = of_file(("" if in_file is None else f'engine = "{in_file}"\n') + CORE)
    assert engine_of(Settings("m", engine=asked), machine) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'{CORE}devices = ["ort_serial"]', "its places have"),
        (f'{CORE}[[place]]\nname = "b"\nhost = "ray"', "place b is on another"),
        (f"{CORE}speed = 0.5", "its places are"),
        (f'timing = "modelled"\n{CORE}', "its places are"),
    ],
)
def test_places_that_have_the_usual_engine(text: str, why: str) -> None:
    machine = of_file(text)
    for engine in (None, "auto", "onnxruntime"):
        assert engine_of(Settings("m", engine=engine), machine) == "onnxruntime"
    with pytest.raises(BadInput, match=rf"^engine = \"openvino\": m\.toml: {why}.*; expected auto or onnxruntime$"):
        engine_of(Settings("m", engine="openvino"), machine)


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_settings, "installed_engines", lambda: {"onnxruntime": "1"})
    assert engine_of(Settings("m"), of_file(CORE)) == "auto"
    with raised(BadInput, Error.EXTRA_MISSING, match=r"'openvino': pip install .*\[openvino\]'$"):
        engine_of(Settings("m", engine="openvino"), of_file(CORE))


@pytest.mark.parametrize("key", ["leases", "plan", "machine", "model"])
def test_an_empty_path_is_not_the_folder_of_the_file(tmp_path: Path, key: str) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in {"model": "m.onnx", key: ""}.items()))
    with raised(BadInput, Error.WRONG_VALUE, match=key):
        read_settings(file)
