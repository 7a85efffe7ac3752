"""The manifest for Kubernetes, as far as it can be held against the project without a cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from shisha_rt.cli.app import command_line
from shisha_rt.cli.serve import settings_of
from shisha_rt.daemon.front.addresses import Addresses, addresses_of
from shisha_rt.show.systemd_unit import STOP_S
from tests.daemon.test_http_address import certificate_in
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import write_identity_model
from tests.waiting import PATIENCE_S

yaml = pytest.importorskip("yaml", reason="PyYAML comes with the extras `real` and `ray`")

MANIFEST: Final = Path(__file__).parents[2] / "configs" / "kubernetes" / "shisha-rt.yaml"
DEPLOYMENT, SERVICE = yaml.safe_load_all(MANIFEST.read_text())
POD: Final[dict[str, Any]] = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
HTTP_SOCKET: Final = "/run/shisha-rt/http.sock"


def addresses(tmp_path: Path) -> Addresses:
    """What its arguments come to, checked as `serve` does, with files of the same names in another folder."""
    command, *words = CONTAINER["args"]
    assert command == "serve"
    certificate, key = certificate_in(tmp_path)
    (tmp_path / "access.toml").touch(0o440)
    for name, path in (("tls.crt", certificate), ("tls.key", key), ("access.toml", tmp_path / "access.toml")):
        (place,) = [index for index, word in enumerate(words) if word.endswith(f"/{name}")]
        words[place] = f"{words[place].partition('=')[0]}={path}"
    serve = typer.main.get_group(command_line()).commands["serve"]
    return addresses_of(settings_of(serve.make_context("serve", words).params))


def test_serve_takes_its_arguments(tmp_path: Path) -> None:
    served = addresses(tmp_path)
    beyond = [address for address in (*served.http, served.metrics) if address.beyond]
    assert [address.port for address in beyond] == [port["containerPort"] for port in CONTAINER["ports"]]
    assert HTTP_SOCKET in [str(address.path) for address in served.http]


def test_the_service_leads_to_ports_that_there_are() -> None:
    assert SERVICE["spec"]["selector"].items() <= DEPLOYMENT["spec"]["template"]["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert {port["targetPort"]: port["port"] for port in SERVICE["spec"]["ports"]} == ports


def test_every_path_that_it_names_is_in_a_volume() -> None:
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in CONTAINER["volumeMounts"]}
    assert sorted(mounts) == sorted(volume["name"] for volume in POD["volumes"])
    words = [word.rpartition("=")[2].removeprefix("ipc://").removeprefix("unix:") for word in CONTAINER["args"]]
    named = [Path(word) for word in words if word.startswith("/")]
    assert len(named) == 6
    assert [path for path in named if not any(path.is_relative_to(mount) for mount in mounts.values())] == []
    containerfile = (MANIFEST.parents[2] / "Containerfile").read_text()
    for folder in ("XDG_CACHE_HOME=/cache", "XDG_RUNTIME_DIR=/run/shisha-rt"):
        assert folder in containerfile
        assert Path(folder.partition("=")[2]) in mounts.values()  # the root file system is read-only


def test_every_secret_is_made_by_a_command_of_the_page() -> None:
    page = (MANIFEST.parents[2] / "docs" / "kubernetes.md").read_text()
    (monitor,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (endpoint,) = yaml.safe_load(monitor)["spec"]["endpoints"]
    named = {endpoint["authorization"]["credentials"]["name"], endpoint["tlsConfig"]["ca"]["secret"]["name"]}
    named |= {volume["secret"]["secretName"] for volume in POD["volumes"] if "secret" in volume}
    assert named <= set(re.findall(r"kubectl create secret \w+ ([\w-]+)", page))


def test_its_cores_can_be_its_own() -> None:
    """Guaranteed, and a whole number."""
    resources = CONTAINER["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["cpu"].isdigit()


def test_there_is_time_to_answer_what_is_in_flight() -> None:
    pause_s = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pause_s + STOP_S <= POD["terminationGracePeriodSeconds"]


def test_who_it_runs_as_is_the_images_user() -> None:
    user = POD["securityContext"]["runAsUser"]
    assert (
        f"USER {user}:{POD['securityContext']['runAsGroup']}\n" in (MANIFEST.parents[2] / "Containerfile").read_text()
    )
    assert POD["securityContext"]["fsGroup"] == POD["securityContext"]["runAsGroup"]
    secrets = [volume["secret"] for volume in POD["volumes"] if "secret" in volume]
    assert [secret["defaultMode"] for secret in secrets] == [0o440, 0o440]


def test_its_probes_find_a_daemon_that_serves_and_one_that_has_gone(tmp_path: Path) -> None:
    socket = tmp_path / "http.sock"
    access = tmp_path / "access.toml"
    access.write_text(f'[[user]]\nname = "a"\ntoken_sha256 = "{"0" * 64}"\n')
    probes = [CONTAINER[probe]["exec"]["command"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")]
    own = [f"--http=unix:{socket}", f"--access={access}"]  # as in the pod: tokens are asked for, but not there
    where = f"ipc://{tmp_path}/socket"
    with DaemonProcess(tmp_path, write_identity_model(tmp_path), *own, endpoint=where):
        assert [_status(command, socket) for command in probes] == [0, 0, 0]
    assert _status(probes[0], socket) == 1


def _status(command: list[str], socket: Path) -> int:
    python, *words = command
    assert python == "python"
    words = [word.replace(HTTP_SOCKET, str(socket)) for word in words]
    return subprocess.run([sys.executable, *words], capture_output=True, timeout=PATIENCE_S).returncode
