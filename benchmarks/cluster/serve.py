"""Throughput over one to three hosts, compared with Ray Serve with the whole model on each: `benchmarks cluster serve`.

Raylets on one host, all but the first behind links of 1 Gbit/s and 1 ms. The kernel limits each host to the same share
of a core, whatever runs there (`rigs/control_group.py`), so that two cores suffice for three hosts and all else. Sides
take turns in each round, with the same number of frames in flight:

- `daemon_shared`, `daemon_http`: the daemon with a place on each host, after it has tuned itself; asked by its own
  client, which shares memory with it, and over HTTP.
- `serve_handle`, `serve_http`: Ray Serve with a replica on each host, a session of ONNX Runtime on one thread; asked by
  its handle from a driver on the head node, which is its fastest interface, and as raw bytes through its HTTP proxy.

`over`: rates over `serve_handle` and `serve_http` of the same round, shared memory over the handle and HTTP over HTTP.
Last, the first network with memory at each place for the fraction `--part` of its file: the daemon cuts the network,
while a whole replica would fit nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any, Final

import typer

from benchmarks.lists import counts_in
from benchmarks.report.report import Report
from benchmarks.report.results import Row, Spread
from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.control import live_plan, tune
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.far_hosts import CORES, FarHosts, check_host, far_daemon, far_hosts
from benchmarks.rigs.servers import free_ports
from shisha_rt.errors import BadInput
from shisha_rt.model.zoo import zoo_path
from shisha_rt.tensors import NUMPY_OF

MODELS: Final = "resnet50,text_detector"
_LIKE: Final = {"daemon_shared": "serve_handle", "daemon_http": "serve_http"}
_IN_FLIGHT: Final = 8

Sides = Mapping[str, ChildProcess]
Inputs = Sequence[Mapping[str, Any]]


def serve(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = MODELS,
    hosts: Annotated[str, typer.Option(help="Numbers of hosts, separated by commas.")] = "1,2,3",
    seconds: Annotated[float, typer.Option(min=0.5, help="For each side in each round.")] = 4.0,
    count: Annotated[int, typer.Option("--rounds", min=1, help="Rounds.")] = 5,
    part: Annotated[
        float,
        typer.Option(min=0.1, max=1.0, help="Of the model's file, that each place has room for in the last case."),
    ] = 0.6,
) -> None:
    """Places on one to three hosts against Ray Serve with the whole model on each, at saturation."""
    numbers = counts_in("--hosts", hosts)
    check_host("cluster serve")
    if find_spec("ray.serve") is None or find_spec("fastapi") is None:
        raise BadInput("cluster serve: this interpreter lacks Ray Serve: the extra `race`")
    report, name, rows = Report("serve"), file_of(models), list[Row]()
    for model in models.split(","):
        for number in numbers:
            report.step(f"{model} on {number} hosts of {CORES:g} cores")
            with far_hosts(number) as far, Rig() as rig:
                sides, plan, inputs = _daemon_sides(rig, model, far)  # tuned before a rival is started
                both = {**sides, **_serve_sides(rig, model, inputs, far)}
                rows += _rows(model, number, both, plan, seconds, count, report)
            report.save(rows, name)
    model, number = models.split(",")[0], max(numbers)
    report.step(f"{model} on {number} hosts with room for {part:g} of it")
    room = math.ceil(part * zoo_path(model, print).stat().st_size)
    with far_hosts(number) as far, Rig() as rig:
        sides, plan, _ = _daemon_sides(rig, model, far, room)
        rows += _rows(model, number, sides, plan, seconds, count, report, memory=f"{room / 1e6:.0f} MB each")
    report.save(rows, name)
    report.show("throughput over hosts, at saturation", rows)


def file_of(models: str) -> str:
    """Name of the results: other networks than the usual ones have a file of their own, named by their last words."""
    names = [] if models == MODELS else [model.rpartition("_")[2] for model in models.split(",")]
    return "_".join(["cluster_serve", *names])


def _rows(
    model: str,
    number: int,
    sides: Sides,
    plan: str,
    seconds: float,
    count: int,
    report: Report,
    memory: str | None = None,
) -> list[Row]:
    asked = {name: partial(side.ask, seconds=seconds) for name, side in sides.items()}
    bursts = report.rounds(f"{model}, {number} hosts", asked, count)
    rounds = [{name: burst["frame_s"] for name, burst in by_side.items()} for by_side in bursts]
    like = {name: other for name, other in _LIKE.items() if other in sides}
    return [
        {
            "network": model,
            "hosts": number,
            "memory": memory,
            "side": name,
            "frames/s": Spread.of(1 / frame_s[name] for frame_s in rounds),
            "over": like.get(name),
            "rate over it": Spread.of(frame_s[like[name]] / frame_s[name] for frame_s in rounds)
            if name in like
            else None,
            "plan": plan if name in _LIKE else None,
        }
        for name in sides
    ]


def _daemon_sides(rig: Rig, model: str, hosts: FarHosts, memory_bytes: int | None = None) -> tuple[Sides, str, Inputs]:
    """The daemon's sides, its plan, and the network's inputs."""
    options = ["--strategy", "guided", "--objective", "throughput", "--http", "127.0.0.1:0"]
    endpoint = f"ipc://{rig.folder()}/daemon"
    started = far_daemon(f"zoo:{model}", hosts, options, memory_bytes=memory_bytes, endpoint=endpoint)
    daemon, control = rig.enter_context(started), rig.control(endpoint)
    metadata = control.metadata()["model"]
    shared = rig.child("client_process", endpoint=endpoint, in_flight=_IN_FLIGHT, share=True)
    inputs = [tensor | {"dtype": NUMPY_OF[tensor["datatype"]].str} for tensor in metadata["inputs"]]
    ports = [int(daemon.http[0].rpartition(":")[2])]
    http = rig.child("http_process", ports=ports, model=metadata["name"], inputs=inputs, in_flight=_IN_FLIGHT)
    tune(control, shared)
    return {"daemon_shared": shared, "daemon_http": http}, str(live_plan(control)), inputs


def _serve_sides(rig: Rig, model: str, inputs: Inputs, hosts: FarHosts) -> Sides:
    (port,) = free_ports(1)
    driver = child_process(
        "benchmarks.servers.ray_cluster_server",
        address=hosts.cluster.address,
        replicas=len(hosts.raylets),
        path=str(zoo_path(model, print)),
        inputs=inputs,
        port=port,
        in_flight=_IN_FLIGHT,
        folder=str(rig.folder()),
    )
    handle = rig.enter_context(driver)
    http = rig.child("http_process", ports=[port], inputs=inputs, in_flight=_IN_FLIGHT)
    return {"serve_handle": handle, "serve_http": http}
