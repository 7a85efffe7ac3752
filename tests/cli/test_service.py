"""The unit that `service` prints: what it starts, what it closes, and that systemd understands it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from shisha_rt.daemon import server
from shisha_rt.errors import Error
from shisha_rt.show.systemd_unit import STOP_S, Unit, quoted
from tests.cli.conftest import Ran, Run

INTERPRETER = "/bin/sh"
START = [INTERPRETER, "-P", "-m", "shisha_rt", "serve"]


@pytest.fixture(autouse=True)
def _interpreter_that_private_tmp_does_not_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would the one that runs here, if the project is in /tmp."""
    monkeypatch.setattr(sys, "executable", INTERPRETER)


def value(ran: Ran, key: str) -> str:
    assert (ran.status, ran.err) == (0, "")
    (text,) = [line.removeprefix(f"{key}=") for line in ran.out.splitlines() if line.startswith(f"{key}=")]
    return text


def has(ran: Ran, *lines: str) -> bool:
    return set(lines) <= set(ran.out.splitlines())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a space in its name to be in, with a model file, and a login name that is not root's."""
    folder = tmp_path / "my models"
    folder.mkdir()
    (folder / "m.onnx").touch()
    (folder / "n.onnx").touch()
    (folder / "least.toml").write_text('[[model]]\nmodel = "m.onnx"\nleast = 9999\n[[model]]\nmodel = "n.onnx"\n')
    (folder / "board.toml").write_text('[[place]]\nname = "a"\ncores = [0]\n')
    (folder / "elsewhere.toml").write_text('[[place]]\nname = "a"\ncores = [9999]\n')
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SUDO_USER", "ann")
    monkeypatch.delenv("SHISHA_ENDPOINT", raising=False)
    monkeypatch.delenv("SHISHA_LEASES", raising=False)
    return folder


def test_paths_become_absolute_and_words_are_quoted(run: Run, here: Path) -> None:
    ran = run(
        *("service", "m.onnx", "--machine", "board.toml", "--http", "unix:h.sock", "--http", "127.0.0.1:8000"),
        *("--unit", "camera", "--name", "door", "--version", "3", "--plan", "p.json", "--dim", "N=1"),
        *("--no-replicate", "-v", "--engine", "onnxruntime"),
    )
    words = [
        *(*START, f'"{here}/m.onnx"', "--machine", f'"{here}/board.toml"', "--engine", "onnxruntime"),
        *("--no-replicate", "--plan", f'"{here}/p.json"', "--http", f'"unix:{here}/h.sock"', "--http"),
        *("127.0.0.1:8000", "--name", "door", "--version", "3", "--dim", "N=1", "--verbose"),
    ]
    assert value(ran, "ExecStart") == " ".join(words)
    assert value(ran, "Description") == "shisha-rt: m"
    assert value(ran, "User") == "ann"
    assert has(ran, "CacheDirectory=camera", "RuntimeDirectory=camera", "MemoryDenyWriteExecute=yes")


def test_names_stay_names(run: Run, here: Path) -> None:
    ran = run("service", "zoo:squeezenet", "--machine", "shared-2")
    assert value(ran, "ExecStart") == " ".join([*START, "zoo:squeezenet", "--machine", "shared-2"])
    assert has(ran, "PrivateTmp=yes", "ProtectSystem=strict", "Type=notify", "WantedBy=multi-user.target")
    assert "ReadWritePaths" not in ran.out


def test_calibration_frames_are_a_path(run: Run, here: Path) -> None:
    ran = run("service", "m.onnx", "--machine", "npu-board", "--precision", "any", "--calibration", "f.npz")
    assert f'--calibration "{here}/f.npz"' in value(ran, "ExecStart")


def test_a_machine_file_of_any_name_is_a_path(run: Run, here: Path) -> None:
    Path("board.toml").rename("board")
    assert value(run("service", "zoo:squeezenet", "--machine", "board"), "ExecStart").endswith(f'"{here}/board"')


def test_several_models_are_one_service(run: Run, here: Path) -> None:
    """As arguments, as tables of a daemon file, or in a folder."""
    ran = run("service", "zoo:squeezenet", "m.onnx", "--http", "8000", "--engine", "onnxruntime")
    words = [*START, "zoo:squeezenet", f'"{here}/m.onnx"', "--engine", "onnxruntime", "--http", "8000"]
    assert value(ran, "ExecStart") == " ".join(words)
    assert value(ran, "Description") == "shisha-rt: zoo:squeezenet, m"
    assert has(ran, "MemoryDenyWriteExecute=yes")
    Path("d.toml").write_text(
        'endpoint = "ipc:///srv/cam/socket"\n[[model]]\nmodel = "m.onnx"\n[[model]]\nmodel = "zoo:squeezenet"\n'
    )
    ran = run("service", "d.toml")
    assert value(ran, "Description") == "shisha-rt: m, zoo:squeezenet"
    Path("models").mkdir()
    Path("m.onnx").rename("models/m.onnx")
    ran = run("service", "models")
    assert value(ran, "ExecStart") == " ".join([*START, f'"{here}/models"'])


def test_a_daemon_file_says_where_its_sockets_are(run: Run, here: Path) -> None:
    Path("d.toml").write_text('model = "m.onnx"\nendpoint = "ipc:///srv/cam/socket"\nhttp = ["unix:/tmp/h.sock"]\n')
    ran = run("service", "d.toml")
    assert value(ran, "ExecStart") == " ".join([*START, f'"{here}/d.toml"'])
    assert has(ran, "ReadWritePaths=/srv/cam", "ReadWritePaths=/tmp")
    assert "PrivateTmp=yes" not in ran.out
    Path("d.toml").write_text('model = "m.onnx"\nendpoint = "ipc://socket"\n')
    assert "ipc://socket: a service is" in run("service", "d.toml").complaint_of(Error.WRONG_OPTION)


def test_a_socket_in_its_own_runtime_folder_needs_no_leave(run: Run, here: Path) -> None:
    ran = run("service", "zoo:squeezenet", "--endpoint", "ipc:///run/camera/socket", "--unit", "camera")
    assert has(ran, "PrivateTmp=yes")
    assert "ReadWritePaths" not in ran.out


def test_only_a_daemon_with_something_to_read_again_is_told_to(run: Run, here: Path) -> None:
    """SIGHUP ends any other."""
    assert "ExecReload" not in run("service", "zoo:squeezenet").out
    Path("users.toml").touch(0o600)
    at = ("--endpoint", "ipc:///run/shisha-rt/socket")
    ran = run("service", "zoo:squeezenet", *at, "--access", "users.toml")
    assert has(ran, "ExecReload=/bin/kill -HUP $MAINPID")


def test_for_a_user_it_asks_for_nothing_that_takes_root(run: Run, here: Path) -> None:
    ran = run("service", "zoo:squeezenet", "--user")
    assert has(ran, "NoNewPrivileges=yes", "WantedBy=default.target")
    assert not any(word in ran.out for word in ("\nUser=", "DynamicUser", "Protect", "Private", "CacheDirectory"))


def test_root_gets_a_user_made_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("SUDO_USER", raising=False)
    assert has(run("service", "zoo:squeezenet"), "DynamicUser=yes")


def test_a_user_without_a_name_is_a_number(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_123)
    monkeypatch.delenv("SUDO_USER", raising=False)
    assert has(run("service", "zoo:squeezenet"), "User=4000000123")


def test_what_a_user_made_up_cannot_reach_is_told(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("SUDO_USER")
    here.chmod(0o700)
    ran = run("service", "m.onnx")
    assert ran.status == 0
    assert str(here / "m.onnx") in ran.err
    assert "/tmp/s" in run("service", "zoo:squeezenet", "--endpoint", "ipc:///tmp/s").err, (
        "DynamicUser= has its own /tmp"
    )
    assert [run("service", *argv).err for argv in (["zoo:squeezenet"], ["--user", "m.onnx"])] == ["", ""]


def test_what_it_reads_in_a_temporary_folder_is_not_hidden() -> None:
    text = Unit("a", "m", ["serve"], "", user="ann", reads=[Path("/tmp/m.onnx")]).text
    assert "PrivateTmp=" not in text
    assert "ReadWritePaths" not in text


@pytest.mark.skipif(find_spec("openvino") is None, reason="needs the extra `openvino`")
def test_an_engine_that_generates_code_may(run: Run, here: Path) -> None:
    """OpenVINO ends with "can't protect" where memory is never both written and run: wherever it may be chosen."""
    denied = "MemoryDenyWriteExecute=yes"
    assert denied not in run("service", "zoo:squeezenet", "--machine", "two-engines").out
    assert denied not in run("service", "zoo:squeezenet").out
    assert denied not in run("service", "zoo:squeezenet", "--engine", "openvino").out
    assert has(run("service", "zoo:squeezenet", "--engine", "onnxruntime"), denied)
    assert has(run("service", "zoo:squeezenet", "--machine", "demo"), denied)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), "shisha-rt service: missing argument"),
        (("m.onx",), "did you mean"),
        (("m.onnx", "no.onnx"), "no.onnx: there is no"),
        (("zoo:nope",), "zoo:nope: no such network"),
        (("m.onnx", "zoo:nope"), "zoo:nope: no such network"),
        (("m.onnx", "--bogus"), "shisha-rt serve: no such option: --bogus"),
        (("m.onnx", "--strategy", "x"), 'strategy = "x": expected'),
        (("m.onnx", "--machine", "no-such"), "no-such"),
        (("m.onnx", "--machine", "pim-board"), "only core_count"),
        (("m.onnx", "--machine", "elsewhere.toml"), "core 9999"),
        (("m.onnx", "--engine", "openvino", "--machine", "demo"), "its places are"),
        (("m.onnx", "n.onnx", "--engine", "openvino", "--machine", "demo"), "its places are"),
        (("m.onnx", "--objective", "energy"), "power_w is missing"),
        (("m.onnx", "n.onnx", "--objective", "energy"), "power_w is missing"),
        (("m.onnx", "--ray", "local"), 'host = "ray"'),
        (("least.toml",), "9999 for m"),
        (("m.onnx", "--calibration", "frames.npz"), "of int8"),
        (("m.onnx", "--layers", "operators"), 'layers = "operators"'),
        (("m.onnx", "--machine", "demo", "--shape", "x=1", "--shape", "x=2"), "one --shape"),
        (("m.onnx", "--http", "0.0.0.0:8000"), "other hosts can"),
        (("m.onnx", "--unit", "a/b"), "--unit a/b: expected letters"),
        (("m.onnx", "--dim", "x"), "--dim x: expected NAME=SIZE"),
    ],
)
def test_what_serve_would_refuse_makes_no_unit(run: Run, here: Path, argv: tuple[str, ...], expected: str) -> None:
    assert expected in run("service", *argv).complaint


def test_there_is_time_to_answer_what_is_in_flight() -> None:
    assert server._DRAIN_S + 10 <= STOP_S


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("a-b_c.d/e:f=1,2+@", "a-b_c.d/e:f=1,2+@"),
        ("", '""'),
        ("a b", '"a b"'),
        ("50%", '"50%%"'),
        ('say "a\\b"', '"say \\"a\\\\b\\""'),
        ("a\nb", '"a\\nb"'),
        (";", '";"'),
    ],
)
def test_words_for_systemd(word: str, written: str) -> None:
    assert quoted(word) == written


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("scope", ["--system", "--user"])
def test_systemd_understands_it(tmp_path: Path, scope: str) -> None:
    command = [sys.executable, "-P", "-m", "shisha_rt", "serve", "a $HOME %h; 'b' \"c\" \\", "x"]
    sockets = [Path("/srv/a b%$c/socket")]
    unit = Unit(
        "cam",
        "50% of it",
        command,
        "shisha-rt service",
        "root",
        sockets,
        for_user=scope == "--user",
        leases=Path("/run/lock/a b"),
    )
    path = tmp_path / "cam.service"
    path.write_text(unit.text)
    checked = subprocess.run(
        ["systemd-analyze", scope, "--man=no", "verify", str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert (checked.returncode, [line for line in checked.stderr.splitlines() if "cam.service" in line]) == (0, [])


def test_leases_of_cores_are_kept_where_others_keep_theirs(run: Run, here: Path) -> None:
    ran = run("service", "m.onnx", "--leases", "leases")
    assert has(ran, f'ReadWritePaths="{here / "leases"}"')
    assert f'--leases "{here}/leases"' in value(ran, "ExecStart")


def test_a_folder_of_leases_that_a_reboot_empties_is_made_anew(run: Run, here: Path) -> None:
    """Not by RuntimeDirectory=, which would take it from the other daemons."""
    argv = ("service", "zoo:squeezenet", "--leases", "/run/lock/shisha-rt")
    ran = run(*argv)
    assert has(ran, "ReadWritePaths=/run/lock/shisha-rt", "PrivateTmp=yes")
    assert value(ran, "ExecStartPre") == "+/bin/mkdir -p -m 1777 /run/lock/shisha-rt"
    assert value(ran, "RuntimeDirectory") == "shisha-rt"
    assert "ExecStartPre" not in run(*argv, "--user").out
    assert "ExecStartPre" not in run("service", "m.onnx").out


def test_leases_in_a_temporary_folder_are_seen_by_others(run: Run, here: Path) -> None:
    ran = run("service", "m.onnx", "--leases", "/tmp/leases")
    assert has(ran, "ReadWritePaths=/tmp/leases")
    assert "PrivateTmp=yes" not in ran.out


def test_what_serve_reads_from_the_environment_is_written(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit has another environment. What the command line or the daemon file says wins, as with `serve`."""
    monkeypatch.setenv("SHISHA_ENDPOINT", "ipc://socket")
    monkeypatch.setenv("SHISHA_LEASES", "leases")
    ran = run("service", "zoo:squeezenet")
    words = ["zoo:squeezenet", "--endpoint", f'"ipc://{here}/socket"', "--leases", f'"{here}/leases"']
    assert value(ran, "ExecStart") == " ".join([*START, *words])
    assert has(ran, f'ReadWritePaths="{here}"', f'ReadWritePaths="{here}/leases"')
    Path("d.toml").write_text('model = "m.onnx"\nendpoint = "tcp://127.0.0.1:5556"\nleases = "/srv/leases"\n')
    assert value(run("service", "d.toml"), "ExecStart") == " ".join([*START, f'"{here}/d.toml"'])
    given = ("--endpoint", "tcp://127.0.0.1:5557", "--leases", "/srv/leases")
    assert value(run("service", "zoo:squeezenet", *given), "ExecStart") == " ".join([*START, "zoo:squeezenet", *given])
    for name in ("SHISHA_ENDPOINT", "SHISHA_LEASES"):
        monkeypatch.setenv(name, "")
    assert value(run("service", "zoo:squeezenet"), "ExecStart") == " ".join([*START, "zoo:squeezenet"])


def test_a_name_longer_than_systemd_takes_is_refused(run: Run, here: Path) -> None:
    assert run("service", "zoo:squeezenet", "--unit", "a" * 247).status == 0
    assert "--unit" in run("service", "zoo:squeezenet", "--unit", "a" * 248).complaint_of(Error.WRONG_OPTION)
