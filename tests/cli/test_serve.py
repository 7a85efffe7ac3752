"""`serve`: what it refuses, each in one line that says what was expected; and daemon files that work."""

from __future__ import annotations

import contextlib
import json
import resource
import select
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from shisha_rt.daemon.settings import Settings, read_settings
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.machine.host.leases import CoreLeases
from shisha_rt.model.input_sizes import ANY_SIZES
from tests.cli.conftest import Run
from tests.cli.test_check import tried
from tests.daemon.test_http_address import certificate_in
from tests.model.networks import odd_network, write
from tests.serving.daemon_process import DaemonProcess, machine_file, serve_command
from tests.serving.identity_model import NAME, write_identity_model
from tests.stages.test_profile_devices import WITHOUT_OPENVINO
from tests.wording import says

ROOT = Path(__file__).parent.parent.parent
FREE_PORTS = ("--endpoint", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0")


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


class TestModel:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (None, "no such file; expected an ONNX file, or zoo:NAME"),
            (b"", "is empty; expected an ONNX file"),
            (b"hello, this is text", "truncated, or not ONNX at all; expected an ONNX file"),
        ],
    )
    def test_a_bad_file(self, run: Run, tmp_path: Path, content: bytes | None, expected: str) -> None:
        path = tmp_path / "bad.onnx"
        if content is not None:
            path.write_bytes(content)
        assert run("serve", path, *FREE_PORTS).complaint == f"shisha-rt: {path}: {expected}"

    def test_a_truncated_file(self, run: Run, tiny_model: Path) -> None:
        tiny_model.write_bytes(tiny_model.read_bytes()[:-100])
        assert run("serve", tiny_model, *FREE_PORTS).complaint.startswith(f"shisha-rt: {tiny_model}: truncated")

    def test_an_unknown_zoo_name(self, run: Run) -> None:
        complaint = run("serve", "zoo:nope", *FREE_PORTS).complaint
        assert complaint.startswith("shisha-rt: zoo:nope: no such network")

    @pytest.mark.parametrize(
        ("dim", "expected"),
        [
            ("N", "--dim N: expected NAME=SIZE"),
            ("N=0", "--dim N=0: expected NAME=SIZE"),
            ("width=640", "--dim width=640: no unknown dimension"),
        ],
    )
    def test_a_wrong_dim(self, run: Run, tiny_model: Path, dim: str, expected: str) -> None:
        assert expected in run("serve", tiny_model, "--dim", dim, *FREE_PORTS).complaint


class TestMachine:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ('[[place]]\nname = "a"\ncores = [0]\nspeed = -1\n', "place[0].speed = -1: expected a number >= "),
            ('[[place]]\nname = "a"\ncores = [0]\nbogus = 1\n', "place[0].bogus = 1: unknown key"),
            ('[[place]]\nname = "a"\ncores = [9999]\n', "place a: core 9999 may not be"),
            ('[[place]]\nname = "a"\ncore_count = 2\n', "place a: only core_count is given"),
            ("x = [\n", "not TOML"),
            ("", "no [[place]]"),
        ],
    )
    def test_a_bad_file(self, run: Run, tiny_model: Path, tmp_path: Path, content: str, expected: str) -> None:
        path = tmp_path / "machine.toml"
        path.write_text(content)
        complaint = run("serve", tiny_model, "--machine", path, *FREE_PORTS).complaint
        assert complaint.startswith(f"shisha-rt: {path}: {expected}")

    def test_an_unknown_name(self, run: Run, tiny_model: Path) -> None:
        complaint = run("serve", tiny_model, "--machine", "nope", *FREE_PORTS).complaint
        assert complaint.startswith('shisha-rt: machine "nope": no such shipped')


class TestLayers:
    def test_an_unknown_kind(self, run: Run, tiny_model: Path) -> None:
        complaint = run("serve", tiny_model, "--layers", "light", *FREE_PORTS).complaint
        assert complaint == says(f'shisha-rt: {tiny_model}: layers = "light": …')

    @pytest.mark.parametrize("command", ["serve", "plan", "costs"])
    def test_operators_where_no_place_has_devices(
        self, run: Run, tiny_model: Path, tmp_path: Path, command: str
    ) -> None:
        machine, ports = machine_file(tmp_path, ["a"]), FREE_PORTS if command == "serve" else ()
        complaint = run(command, tiny_model, "--machine", machine, "--layers", "operators", *ports).complaint
        expected = '… devices, which layers = "operators" is for, …'
        assert complaint == says(f"shisha-rt: {machine}: {expected}")

    def test_of_a_daemon_file(self, run: Run, tiny_model: Path, tmp_path: Path) -> None:
        machine = machine_file(tmp_path, ["a"])
        daemon = tmp_path / "daemon.toml"
        daemon.write_text(f'model = "{tiny_model.name}"\nmachine = "{machine.name}"\nlayers = "operators"\n')
        complaint = run("serve", daemon, *FREE_PORTS).complaint
        assert complaint.startswith(f"shisha-rt: {machine}: no place has")


class TestAddresses:
    @pytest.mark.parametrize(
        ("endpoint", "expected"),
        [
            ("tcp://0.0.0.0:5555", "other hosts can"),
            ("tcp://192.168.0.1:5555", "other hosts can"),
            ("tcp://*:5555", "other hosts can"),
            ("http://127.0.0.1:5555", "expected tcp://HOST:PORT or ipc://PATH"),
            ("tcp://127.0.0.1", "expected tcp://HOST:PORT or ipc://PATH"),
            ("tcp://127.0.0.1:99999", "expected tcp://HOST:PORT or ipc://PATH"),
        ],
    )
    def test_an_endpoint_for_others(self, run: Run, tiny_model: Path, endpoint: str, expected: str) -> None:
        complaint = run("serve", tiny_model, "--endpoint", endpoint, "--metrics", "127.0.0.1:0").complaint
        assert complaint.startswith(f"shisha-rt: endpoint {endpoint!r}: {expected}")

    def test_an_endpoint_in_use(self, run: Run, tiny_model: Path, busy_port: int) -> None:
        endpoint = f"tcp://127.0.0.1:{busy_port}"
        complaint = run("serve", tiny_model, "--endpoint", endpoint, "--metrics", "127.0.0.1:0").complaint
        assert complaint.startswith(f"shisha-rt: endpoint {endpoint}: Address already in")

    @pytest.mark.parametrize("option", ["endpoint", "http", "metrics"])
    def test_an_address_in_use_is_refused_before_the_model_is_read(
        self, run: Run, tmp_path: Path, busy_port: int, option: str
    ) -> None:
        model = tmp_path / "empty.onnx"
        model.touch()
        scheme = "tcp://" if option == "endpoint" else ""
        complaint = run("serve", model, *FREE_PORTS, f"--{option}", f"{scheme}127.0.0.1:{busy_port}").complaint
        assert complaint.startswith(f"shisha-rt: {option} ")

    @pytest.mark.parametrize("count", [1, 2])
    def test_a_limit_of_open_files_that_is_too_low(self, tmp_path: Path, count: int) -> None:
        """ZeroMQ would end the process, or call an address taken."""
        models = [f"{tmp_path}/{number}.onnx" for number in range(count)]
        for model in models:
            Path(model).touch()
        command = ["prlimit", "--nofile=16", sys.executable, "-m", "shisha_rt", "serve", *models, *FREE_PORTS]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (1, says("shisha-rt: Too many open …ulimit -n…"))

    def test_two_of_its_addresses_are_one(self, run: Run, tmp_path: Path) -> None:
        path = f"unix:{tmp_path}/socket"
        complaint = run("serve", tmp_path / "none.onnx", *FREE_PORTS, "--http", path, "--http", path).complaint
        assert complaint.startswith(f"shisha-rt: endpoint {path}: ")
        assert not [*tmp_path.iterdir()]

    def test_an_ipc_path_that_cannot_be(self, run: Run, tiny_model: Path, tmp_path: Path) -> None:
        endpoint = f"ipc://{tmp_path}/none/socket"
        complaint = run("serve", tiny_model, "--endpoint", endpoint, "--metrics", "127.0.0.1:0").complaint
        assert complaint.startswith(f"shisha-rt: endpoint {endpoint}: No such file")

    def test_an_ipc_path_in_use(self, run: Run, tiny_model: Path, tmp_path: Path) -> None:
        endpoint = f"ipc://{tmp_path}/socket"
        machine = machine_file(tmp_path, ["a"])
        with DaemonProcess(tmp_path, tiny_model, "--machine", machine, endpoint=endpoint):
            complaint = run("serve", tiny_model, "--endpoint", endpoint, "--metrics", "127.0.0.1:0").complaint
        expected = f"shisha-rt: endpoint {endpoint}: another daemon … there; …"
        assert complaint == says(expected)

    @pytest.mark.parametrize("metrics", ["127.0.0.1", "127.0.0.1:x", "unix:/run/metrics"])
    def test_metrics_where_there_is_no_address(self, run: Run, tiny_model: Path, metrics: str) -> None:
        complaint = run("serve", tiny_model, "--endpoint", "tcp://127.0.0.1:0", "--metrics", metrics).complaint
        assert complaint.startswith(f"shisha-rt: metrics {metrics!r}: expected HOST:PORT, as 127.0.0.1:9464, or")

    @pytest.mark.parametrize("metrics", ["0.0.0.0:9464", "example.org:1"])
    def test_metrics_for_others(self, run: Run, tiny_model: Path, metrics: str) -> None:
        complaint = run("serve", tiny_model, "--endpoint", "tcp://127.0.0.1:0", "--metrics", metrics).complaint
        assert complaint.startswith(f"shisha-rt: metrics {metrics}: other hosts can")

    def test_metrics_for_others_at_an_address_of_another_host(self, run: Run, tiny_model: Path, tmp_path: Path) -> None:
        certificate, key = certificate_in(tmp_path)
        access = tmp_path / "access.toml"
        access.touch(0o600)
        tls = ("--http-certificate", certificate, "--http-key", key, "--access", access)
        options = ("--endpoint", f"ipc://{tmp_path}/socket", "--metrics", "192.0.2.1:9464", *tls)
        complaint = run("serve", tiny_model, *options).complaint
        assert complaint.startswith("shisha-rt: metrics 192.0.2.1:9464: Cannot assign requested")

    def test_a_metrics_port_in_use(self, run: Run, tiny_model: Path, busy_port: int) -> None:
        metrics = f"127.0.0.1:{busy_port}"
        options = ("--endpoint", "tcp://127.0.0.1:0", "--metrics", metrics)
        complaint = run("serve", tiny_model, *options).complaint
        assert complaint.startswith(f"shisha-rt: metrics port {busy_port} on 127.0.0.1: Address already in")


def test_a_strategy_that_is_not_built(run: Run, tiny_model: Path) -> None:
    complaint = run("serve", tiny_model, "--strategy", "exact", *FREE_PORTS).complaint
    assert complaint.startswith(f'shisha-rt: {tiny_model}: strategy = "exact": expected ')


def test_an_objective_that_there_is_not(run: Run, tiny_model: Path) -> None:
    complaint = run("serve", tiny_model, "--objective", "power", *FREE_PORTS).complaint
    assert complaint == says(f'shisha-rt: {tiny_model}: objective = "power": …')


class TestEngine:
    @WITHOUT_OPENVINO
    @pytest.mark.usefixtures("own_cache")
    def test_one_that_does_not_run_the_network(self, run: Run, tmp_path: Path) -> None:
        path = write(odd_network(), tmp_path)
        tried(path, "shared-2", ANY_SIZES)  # in less time than a daemon would take
        ran = run("serve", path, "--machine", "shared-2", "--engine", "openvino", "--strategy", "seed", *FREE_PORTS)
        assert (ran.status, ran.out) == (2, "")
        *_, complaint = ran.err.splitlines()  # progress goes before it, where that takes long
        assert complaint.startswith('shisha-rt: engine = "openvino": not for tiny: ')
        assert "Det" in complaint
        assert complaint.endswith("; expected auto or onnxruntime")

    def test_one_for_places_that_are_emulated(self, run: Run, tiny_model: Path) -> None:
        complaint = run("serve", tiny_model, "--engine", "openvino", "--machine", "demo", *FREE_PORTS).complaint
        assert "its places are" in complaint


class TestDaemonFile:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (None, "cannot be read ("),
            (b"\xff\xfe", "not UTF-8 text"),
            (b"x = [", "not TOML: Invalid value"),
            (b'model = "m.onnx"\nbogus = 1\n', "bogus = 1: unknown key"),
            (b"model = 3\n", "model = 3: expected text"),
            (b'machine = "demo"\n', "model"),
            (b'model = "m.onnx"\n[dims]\nN = 0\n', "dims.N = 0"),
            (b'model = "m.onnx"\nprecision = "bf16"\n', 'precision = "bf16"'),
        ],
    )
    def test_refused(self, run: Run, tmp_path: Path, content: bytes | None, expected: str) -> None:
        path = tmp_path / "daemon.toml"
        if content is not None:
            path.write_bytes(content)
        assert run("serve", path).complaint.startswith(f"shisha-rt: {path}: {expected}")

    def test_one_that_works(self, tmp_path: Path) -> None:
        """Model and machine lie beside it, and options win over it."""
        folder = tmp_path / "files"
        folder.mkdir()
        write_identity_model(folder)
        machine = machine_file(folder, ["left", "right"])
        path = folder / "daemon.toml"
        path.write_text(
            f'model = "{NAME}.onnx"\nmachine = "{machine.name}"\nstrategy = "seed"\n'
            'endpoint = "tcp://127.0.0.1:1"\nmetrics = "127.0.0.1:1"\n'
        )
        with DaemonProcess(tmp_path, path, is_program=True) as daemon:
            status = daemon.control.status()
            assert status["model"]["name"] == NAME
            assert [place["name"] for place in status["places"]] == ["left", "right"]
            assert not daemon.endpoint.endswith(":1")

    def test_the_example_shows_every_default(self) -> None:
        path = ROOT / "configs" / "daemons" / "example.toml"
        assert read_settings(path) == Settings("zoo:squeezenet")
        text = path.read_text()
        unset = {name for name in Settings.__struct_fields__ if getattr(Settings("m"), name) in (None, ())}
        assert tomllib.loads(text).keys() == set(Settings.__struct_fields__) - unset
        for name in unset - {"shape"}:
            assert f"\n# {name} = " in text
        assert "\n# [[shape]]" in text  # an empty list of tables cannot be written as one


def test_a_model_that_is_not_served_has_one_line_beside_another_daemon_too(tmp_path: Path) -> None:
    """Nobody wants to know of cores that it would have shared."""
    with contextlib.closing(CoreLeases()) as another:
        assert all(map(another.take, usable_cores()))
        ran = subprocess.run(serve_command(tmp_path / "none.onnx"), capture_output=True, check=False)
    assert (ran.returncode, ran.stderr.count(b"\n")) == (2, 1)


def test_a_folder_for_leases_that_cannot_be_is_refused(run: Run) -> None:
    ran = run("serve", "zoo:squeezenet", "--leases", "/proc/leases")
    assert ran.complaint == says("shisha-rt: leases /proc/leases: No such … directory; …")


class TestEnergy:
    PLACES = '[[place]]\nname = "a"\ncores = [0]\nspeed = 0.4\npower_w = 2.0\n'

    @pytest.mark.parametrize(
        ("further", "option", "expected"),
        [
            ('[[place]]\nname = "b"\ncores = [0]\nspeed = 0.2\n', "guided", "place b: power_w is missing, expected …"),
            ("", "shisha", 'objective = "energy": … strategy shisha, …'),
        ],
    )
    def test_it_takes_power_and_costs(
        self, run: Run, tiny_model: Path, tmp_path: Path, further: str, option: str, expected: str
    ) -> None:
        machine = tmp_path / "board.toml"
        machine.write_text(self.PLACES + further)
        ran = run("serve", tiny_model, "--machine", machine, "--objective", "energy", "--strategy", option, *FREE_PORTS)
        assert ran.complaint == says(f"shisha-rt: …{expected}")

    def test_watts_are_positive(self, run: Run, tiny_model: Path, tmp_path: Path) -> None:
        machine = tmp_path / "board.toml"
        machine.write_text(self.PLACES.replace("2.0", "0"))
        assert "place[0].power_w = 0: expected" in run("serve", tiny_model, "--machine", machine, *FREE_PORTS).complaint


def test_more_descriptors_are_taken_than_a_shell_allows(run: Run) -> None:
    """Else a daemon has none left for new clients after some hundred."""
    _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
    try:
        run("serve", "missing.onnx")
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (65_536 if hard < 0 else min(hard, 65_536), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_in_a_locale_of_ascii_paths_may_have_umlauts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hung, or refused them: no message to a child could hold such a path."""
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "ä"
    folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    options = ("--endpoint", f"ipc://{folder}/s", "--metrics", "127.0.0.1:0", "--leases", str(folder / "leases"))
    command = [
        sys.executable,
        "-m",
        "shisha_rt",
        "serve",
        str(write_identity_model(folder)),
        *options,
        "--strategy",
        "seed",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as daemon:
        try:
            assert daemon.stdout is not None
            ready, _, _ = select.select([daemon.stdout], [], [], 60)
            assert ready
            assert json.loads(daemon.stdout.readline())["endpoint"] == f"ipc://{folder}/s"
            daemon.terminate()
            assert daemon.wait(30) == 0
        finally:
            daemon.kill()
