"""What commands of the pages need that no block before them shows, and those that cannot run beside tests, and why.

Whatever is not in `NOT_RUN` is run by `test_run.py`, so a new command needs an entry here or has to work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from tests.pages.shown import Command, Program, Shown

_REGISTRY: Final = "takes a package registry: tests/install/test_wheel.py"
_CONTAINER: Final = "takes an engine for containers, and images from a registry: tests/install/test_containerfile.py"
_OTHER_HOST: Final = "names another host"
_PERF: Final = "takes NVIDIA's package, which goes with one C library only"
_LOADGEN: Final = "takes the extra `loadgen`, in an environment of its own: tests/examples/test_clients.py"
_MODELS: Final = "takes models of its reader's: tests/serving/test_several_models.py"
NOT_RUN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "make *": "sets up a checkout, and runs what runs this",
        "pip install *": _REGISTRY,
        "venv/bin/pip install *": _REGISTRY,
        "pip wheel *": "has made what these commands run with: tests/pages/test_run.py",
        "python3 -m venv venv*": _REGISTRY,
        "export PATH=*": _REGISTRY,
        "python -m benchmarks *": "takes minutes to hours: tests/benchmarks has each with less",
        "podman *": _CONTAINER,
        "prometheus *": "a program of others: tests/serving/test_prometheus.py",
        "apt-get *": "takes root, and a package registry",
        "systemctl *": "takes systemd",
        "ray start *": "more than one host: tests/hosts",
        "* --ray auto": "more than one host: tests/hosts",
        "cd examples/javascript *": "takes a package registry: tests/examples/test_clients.py",
        "g++ *": "takes packages of the system: tests/examples/test_clients.py",
        "python -m venv perf *": _PERF,
        "export LD_LIBRARY_PATH=*": _PERF,
        "perf/bin/perf_analyzer *": _PERF,
        "python3.11 -m venv *": _REGISTRY,
        "loadgen/bin/python *": _LOADGEN,
        "* --video street.mp4 *": "takes a film of its reader's, and OpenCV",
        "* IN.npz OUT.npz": "takes files of its reader's",
        "* https://gpu1.example.org:*": _OTHER_HOST,
        "* https://shisha-rt:8000/*": _OTHER_HOST,
        "* tcp://192.168.1.20:5555 *": f"{_OTHER_HOST}: tests/serving/test_keys.py",
        "shisha-rt models load *": _MODELS,
        "shisha-rt models undo *": _MODELS,
        "shisha-rt models unload *": _MODELS,
        "shisha-rt --*-completion*": "goes by the shell that it is typed in: tests/cli/test_completion.py",
    }
)
"""Commands, as a shell has wildcards, with the reason."""

NOT_RUN_PROGRAMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tritonclient.utils.shared_memory": "goes on from another program: tests/http has the like",
        "tcp://192.168.1.20:5555": _OTHER_HOST,
        'model="detector"': "takes a model of its reader's: tests/serving/test_several_models.py",
    }
)
"""Programs by a text in them, with the reason."""

_CERTIFICATE: Final = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=here "
    "-addext subjectAltName=DNS:here -keyout http.key -out http.pem"
)
_ALLOWED: Final = "shisha-rt keys new someone --token --json > made.json && shisha-rt keys new daemon > /dev/null"
_ALLOW: Final = (
    "python -c \"import json; u = json.load(open('made.json'))['user']; "
    "print('[[user]]', *(f'{k} = {json.dumps(v)}' for k, v in u.items()), sep='\\n')\" > access.toml"
)
PRESUMED: Final[Mapping[str, Mapping[str, Sequence[str]]]] = MappingProxyType(
    {
        "cli.md": {"shisha-rt plan get *": ["shisha-rt serve zoo:squeezenet"]},
        "examples.md": {"python examples/camera.py": ["shisha-rt serve zoo:squeezenet --http 127.0.0.1:8000"]},
        "metrics.md": {"shisha-rt serve model.onnx --metrics *": [_CERTIFICATE, _ALLOWED, _ALLOW]},
        "python.md": {"import numpy*": ["shisha-rt serve zoo:squeezenet"]},
        "plans.md": {"from shisha_rt.client import Client, Plan, Stage*": ["shisha-rt serve zoo:squeezenet"]},
        "security.md": {"shisha-rt serve zoo:squeezenet *": [_ALLOWED, _ALLOW]},
        "sizing.md": {"ps *": ["shisha-rt serve model.onnx"]},
        "traces.md": {"shisha-rt status --why": ["shisha-rt serve model.onnx", "shisha-rt submit --frames 50"]},
        "wire.md": {"import numpy*": ["shisha-rt serve zoo:squeezenet"]},
    }
)
"""By page and the first command (or program) that needs them: what is done before it."""


def reason_not_to_run(shown: Shown) -> str | None:
    """None: it is run."""
    if isinstance(shown, Command):
        if shown.is_synopsis:
            return "has words for what its reader puts there"
        return next((reason for pattern, reason in NOT_RUN.items() if fnmatchcase(_typed(shown), pattern)), None)
    assert isinstance(shown, Program)
    return next((reason for text, reason in NOT_RUN_PROGRAMS.items() if text in shown.text), None)


def presumed(shown: Shown) -> Sequence[str]:
    """What is done before it, in this page."""
    for pattern, commands in PRESUMED.get(shown.page.name, {}).items():
        if fnmatchcase(_typed(shown), pattern):
            return commands
    return ()


def _typed(shown: Shown) -> str:
    """Without the comment behind it."""
    text = shown.text.replace("\\\n", "")
    return text.partition(" #")[0].strip() if isinstance(shown, Command) else text
