"""Targets of fuzzing: all readers of untrusted input. Each accepts its input, or refuses it in one line.

Any other error is a defect; so are a refusal of several lines, and an exit status other than 0, 1 or 2.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from benchmarks.robust import bases
from benchmarks.robust.mutations import mutated_bytes, mutated_json_text, mutated_model, mutated_tokens
from shisha_rt.cli.app import main
from shisha_rt.costs.costs_file import parse_costs
from shisha_rt.daemon.settings import check_built, read_settings
from shisha_rt.errors import BadInput, Failure
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.inference.request import array_of, read_header
from shisha_rt.machine.config.device_files import devices_of, parse_device
from shisha_rt.machine.config.machine_file import check_runnable, parse_machine
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.split import Splittable
from shisha_rt.placement.problem_file import parse_problem
from shisha_rt.plan.form import plan_of, written
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.strategies import LIMITED
from shisha_rt.protocol.conversation import Conversation
from shisha_rt.protocol.exceptions import ShishaError
from shisha_rt.protocol.limits import Limits
from shisha_rt.protocol.operations import PlanSet
from shisha_rt.protocol.request import OpRequest, parse
from shisha_rt.repository.entries import entries_of, names_several
from shisha_rt.tensors import NUMPY_OF

Mutate: TypeAlias = Callable[[random.Random, bytes], bytes]

_CORPUS: Final = Path(__file__).with_name("corpus")
_STRATEGIES: Final = ("seed", "shisha", "guided", "guided --replicate", *(f"{n} --time-limit 1" for n in LIMITED))
_SOLVERS: Final = ("als", "als_literal", "exact", "milp", "brute", "duet", "typeseq", "opseq", "partitiontuner")
_RULES: Final = PlanRules(
    bases.LAYERS,
    bases.PLACES,
    operator_counts=(1,) * bases.LAYERS,
    needs=tuple(map(frozenset, ((), (0,), (0,), (1,), (3,), (2, 4)))),
    splits={((2, 2), "channels"): Splittable(2, 2, "channels", 4, 1, ("t",), joined=True)},
)


class Refused(Exception):
    """The input was refused, as it should be."""


@dataclass(frozen=True)
class Target:
    """`take` reads any input, and raises `Refused` for what it does not accept, within `limit_s`.

    `share`: factor on the number of cases, as some targets take a hundred times as long as others; together `request`
    and `answer`, the protocol's decoders, get a hundred times as many as a reader of files.
    """

    bases: Callable[[], Sequence[bytes]]
    mutate: Mutate
    take: Callable[[bytes], None]
    limit_s: float = 1.0
    share: float = 1.0

    def case(self, name: str, seed: int, number: int) -> bytes:
        """The input of a number; inputs of one seed, or of one number, are independent."""
        rng = random.Random(f"{name} {seed} {number}")
        return self.mutate(rng, rng.choice(_begun_with(name)))


@cache
def _begun_with(name: str) -> Sequence[bytes]:
    return [*TARGETS[name].bases(), *kept(name)]


def kept(name: str) -> list[bytes]:
    """Inputs that have shown a defect before."""
    return [path.read_bytes() for path in sorted((_CORPUS / name).glob("*"))]


def _refusing(*refusals: type[Exception]) -> Callable[[Callable[[bytes], object]], Callable[[bytes], None]]:
    def wrap(take: Callable[[bytes], object]) -> Callable[[bytes], None]:
        def taken(data: bytes) -> None:
            try:
                take(data)
            except refusals as error:
                if "\n" in str(error):
                    raise AssertionError(f"a refusal of several lines: {error}") from error
                raise Refused from None

        return taken

    return wrap


@_refusing(ShishaError)
def _request(data: bytes) -> None:
    parts: list[bytes] = msgspec.msgpack.decode(data, type=list[bytes])
    request = parse(parts, bases.SIGNATURE, Limits(max_message_bytes=100_000))
    if isinstance(request, OpRequest) and isinstance(request.arguments, PlanSet):
        _RULES.too_large(request.arguments.stages)


def _mutated_parts(rng: random.Random, data: bytes) -> bytes:
    header, *raw = msgspec.msgpack.decode(data, type=list[bytes])
    match rng.randrange(8):
        case 0 if raw:
            raw[rng.randrange(len(raw))] = rng.randbytes(rng.choice((0, 1, 15, 17, 1000)))
        case 1:
            raw = raw * rng.choice((0, 2, 40)) + [b""] * rng.choice((0, 1))
        case 2:
            header = mutated_bytes(rng, header)
        case _:
            header = mutated_json_text(rng, header)
    return msgspec.msgpack.encode([header, *raw])


def _answer(data: bytes) -> None:
    """A client may receive anything and must raise nothing: each of its requests has at most one outcome."""
    conversation = Conversation()
    for op in ("server_metadata", "model_metadata"):
        conversation.sends(conversation.ask(op))
    conversation.signature = bases.SIGNATURE
    inputs = {tensor.name: np.zeros(tensor.shape, NUMPY_OF[tensor.datatype]) for tensor in bases.SIGNATURE.inputs}
    conversation.sends(conversation.infer(inputs))
    before = conversation.in_flight
    parts = msgspec.msgpack.decode(data, type=list[bytes])
    settled = [*conversation.receive(parts), *conversation.receive(parts)]
    names = [request_id for request_id, _ in settled]
    assert len(names) == len(set(names)), f"two outcomes of one request: {settled}"
    assert conversation.in_flight == before - len(names), f"{conversation.in_flight} in flight, {before} were"
    if not settled:
        raise Refused


@_refusing(ShishaError, HttpFault)
def _http(data: bytes) -> None:
    asked = read_header(data, bases.SIGNATURE)
    for tensor in asked.inputs:
        if tensor.data:
            array = array_of(tensor)
            assert array.shape == tensor.shape, f"{array.shape} for {tensor.shape}"


def _plan(data: bytes) -> None:
    try:
        stages = msgspec.json.decode(data, type=list[dict[str, Any]])
        plan = plan_of(stages)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Refused from None  # the caller reports why, in one line
    if _RULES.problems(plan):
        raise Refused
    assert plan_of(written(plan)) == plan


def _file(suffix: str, take: Callable[[Path], object]) -> Callable[[bytes], None]:
    """Make a target of `take`, which reads a file with this suffix."""

    @_refusing(BadInput, Failure)
    def taken(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"case{suffix}")
            path.write_bytes(data)
            take(path)

    return taken


def _command(parse: Callable[[bytes, str], object], words: str, *choices: str) -> Callable[[bytes], None]:
    """Run a command on a file that `parse` accepts, with one of `choices`, chosen by the length of the input."""

    def run(path: Path) -> None:
        data = path.read_bytes()
        parse(data, str(path))  # first by itself, as most is refused here, and commands take long to begin
        argv = f"{words} {choices[len(data) % len(choices)]}".replace("FILE", str(path)).split()
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(argv)
        said = err.getvalue()
        if status == 0:
            json.loads(out.getvalue())
        elif status == 1:
            raise Refused
        else:
            assert status == 2, f"{argv}: exit status {status}"
            assert said.count("\n") == 1, f"{argv}: {said.count(chr(10))} lines: {said}"
            raise Refused

    return _file(".json", run)


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")


def _machine(path: Path) -> None:
    machine = parse_machine(_text(path), name="case", source=str(path))
    for place in machine.places:
        if place.devices:
            devices_of(machine, place)
    with contextlib.suppress(BadInput):  # it may be a machine on paper
        check_runnable(machine, range(64))


def _device(path: Path) -> None:
    parse_device(_text(path), name="case", source=str(path))


def _daemon(path: Path) -> None:
    if names_several([str(path)]):
        entries_of([str(path)], {})
    else:
        check_built(read_settings(path), str(path))


TARGETS: Final[Mapping[str, Target]] = {
    "request": Target(bases.requests, _mutated_parts, _request),
    "answer": Target(bases.answers, _mutated_parts, _answer),
    "http": Target(bases.http_bodies, mutated_json_text, _http, share=0.2),
    "plan": Target(bases.plans, mutated_json_text, _plan, share=0.2),
    "machine": Target(partial(bases.shipped, "machines"), mutated_tokens, _file(".toml", _machine), share=0.02),
    "device": Target(partial(bases.shipped, "devices"), mutated_tokens, _file(".toml", _device), share=0.02),
    "daemon": Target(partial(bases.shipped, "daemons"), mutated_tokens, _file(".toml", _daemon), share=0.02),
    "costs": Target(
        bases.costs,
        mutated_json_text,
        _command(parse_costs, "plan --costs FILE --json --strategy", *_STRATEGIES),
        limit_s=20.0,
        share=0.02,
    ),
    "problem": Target(
        bases.problems,
        mutated_json_text,
        _command(parse_problem, "place FILE --json --solver", *_SOLVERS),
        limit_s=20.0,
        share=0.02,
    ),
    "onnx": Target(bases.models, mutated_model, _file(".onnx", read_model), limit_s=60.0, share=0.02),
}
