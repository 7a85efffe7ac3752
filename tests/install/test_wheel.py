"""The wheel in environments that have nothing else: what people get who have no checkout, on each Python there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from shisha_rt import __version__
from tests.install.registry import PIP, ROOT, make_wheel, why_unreachable

VERSIONS: Final = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
pytestmark = pytest.mark.long

# Every interpreter of the environment, the daemon's children too, notes what it opens below the checkout.
WATCH: Final = """
import os, sys

def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and os.path.abspath(arguments[0]).startswith({checkout!r}):
        with open({log!r}, "a") as log:
            print(arguments[0], sys.argv, file=log)

sys.addaudithook(note)
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheel in it, and the folders of somebody who has never run a command of it."""

    folder: Path
    wheel: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def run(self, *command: str, program: str = "shisha-rt") -> str:
        """Standard output of one that ends well."""
        done = subprocess.run(
            [self.folder / "venv" / "bin" / program, *command],
            capture_output=True,
            text=True,
            cwd=self.work,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(self.home),
                "TMPDIR": str(self.temporary),
                "XDG_CACHE_HOME": str(self.folder / "cache"),
            },
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    if why := make_wheel(folder):
        pytest.skip(why)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module", params=VERSIONS)
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    """With the Python that runs the tests, and with each other one of those supported that is in PATH."""
    folder = tmp_path_factory.mktemp("install")
    subprocess.run([_interpreter(request.param), "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    if why := why_unreachable([str(python), *PIP, "install", "--quiet", str(wheel)]):
        pytest.skip(why)
    log = folder / "opened"
    (packages,) = (folder / "venv" / "lib").glob("python3.*/site-packages")
    (packages / "sitecustomize.py").write_text(WATCH.format(checkout=f"{ROOT}/", log=str(log)))
    environment = Environment(folder, wheel)
    for made in (environment.home, environment.work, environment.temporary):
        made.mkdir()
    yield environment
    assert not log.exists(), log.read_text()
    for made in (environment.home, environment.work, environment.temporary):
        assert [left for left in made.rglob("*") if not _is_lease(left)] == []
    assert [entry.name for entry in (folder / "cache").iterdir()] == ["shisha-rt"]


def _is_lease(path: Path) -> bool:
    """A lock on a core, or its folder: they are left where they are, so that all who lock find the same."""
    return any(part.startswith("shisha-rt-cores-") for part in path.parts)


def _interpreter(version: str) -> str:
    if version == ".".join(map(str, sys.version_info[:2])):
        return sys.executable
    interpreter = shutil.which(f"python{version}")
    if interpreter is None or subprocess.run([interpreter, "-c", "import venv"], capture_output=True).returncode != 0:
        pytest.skip(f"there is no Python {version} in PATH")  # a launcher of that name may be there without it
    return interpreter


def test_the_commands_are_there(installed: Environment) -> None:
    version = f"shisha-rt {__version__}\n"
    assert installed.run("--version") == version
    assert installed.run("-m", "shisha_rt", "--version", program="python") == version


def test_a_network_of_the_zoo_has_its_layers(installed: Environment) -> None:
    assert len(json.loads(installed.run("layers", "zoo:squeezenet", "--json"))["layers"]) == 26


def test_shipped_files_are_known_by_name(installed: Environment) -> None:
    names = {path.stem for path in (ROOT / "configs" / "machines").glob("*.toml")}
    for name in sorted(names - {"two-engines"}):  # which takes the extra `openvino`
        assert "ExecStart" in installed.run("service", "zoo:squeezenet", "--precision", "any", "--machine", name)
    placed = installed.run("place", "zoo:squeezenet", "--machine", "pim-board", "--json")
    assert json.loads(placed)["outcome"] == "optimal"  # devices have files of their own


def test_the_demo_runs(installed: Environment) -> None:
    seen = json.loads(installed.run("demo", "--seconds", "0.5", "--json"))
    assert seen["png"] is None  # the extra `plot` is not there
    assert seen["answered"] == seen["sent"] > 0
    assert seen["faults"] == []


def test_a_unit_starts_what_is_installed(installed: Environment) -> None:
    python = installed.folder / "venv" / "bin" / "python"
    assert f"\nExecStart={python} -P -m shisha_rt serve zoo:squeezenet\n" in installed.run("service", "zoo:squeezenet")


def test_types_and_shipped_files_are_in_the_wheel(installed: Environment) -> None:
    with ZipFile(installed.wheel) as wheel:
        names = set(wheel.namelist())
    assert "shisha_rt/py.typed" in names
    shipped = {path.relative_to(ROOT) for path in (ROOT / "configs").rglob("*") if path.is_file()}
    assert {f"shisha_rt/{path}" for path in shipped} <= names
    assert {name.split("/")[0] for name in names} == {"shisha_rt", "stages", f"shisha_rt-{__version__}.dist-info"}
