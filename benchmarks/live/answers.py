"""Whether answers through a pipeline equal the whole model's, bit for bit: `python -m benchmarks answers`.

All networks of the zoo, in two, three and four stages: the seed's plan, and one with random legal cuts. The reference
is one session of the whole optimised graph, run directly by the engine. If a network ends in a Softmax, the Softmax's
input is an output, too, as the Softmax may hide differences.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import onnx
import onnxruntime as ort
import typer

from benchmarks.report.facts import facts
from benchmarks.report.results import Row, save_csv, show
from benchmarks.rigs.child_process import child_process
from benchmarks.rigs.stage_rig import random_inputs
from shisha_rt.cache import cache_folder, publish
from shisha_rt.client import Client
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.zoo import SHIPPED, zoo_path
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.seed import seed
from stages.engines.onnxruntime.optimised_graph import MODEL_FILE
from stages.engines.onnxruntime.options import as_built_options

MACHINE: Final = "shared-4"  # four places on two cores: right for answers, not for times
STAGES: Final = (2, 3, 4)

Outputs = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`answers`: number received; `equal`: those with the reference's bits in every output; `worst`: the largest error.

    `input_effect`: the least distance between outputs of two inputs, to show that equality is significant.
    """

    model: str
    layer_count: int
    legal_cuts: int
    outputs: int
    plans: int
    answers: int
    equal: int
    worst: float
    input_effect: float


def with_logits(name: str) -> Path:
    """The network with its last Softmax's input as a further output; unchanged if it has no Softmax."""
    source = zoo_path(name)

    def build(folder: Path) -> None:
        model = onnx.load(source)
        softmaxes = [node for node in model.graph.node if node.op_type == "Softmax"]
        shapes = {value.name: value for value in model.graph.output}
        if softmaxes and softmaxes[-1].output[0] in shapes:
            logits = onnx.ValueInfoProto()
            logits.CopyFrom(shapes[softmaxes[-1].output[0]])
            logits.name = softmaxes[-1].input[0]
            model.graph.output.append(logits)
        onnx.save(model, folder / f"{name}.onnx")

    return publish(cache_folder() / "benchmarks" / "with_logits" / name, build) / f"{name}.onnx"


def plans_of(compiled: Compiled, machine: Machine, generator: random.Random) -> list[Plan]:
    """For each number of stages that the network can be cut into: the seed's plan, and a random one."""
    weights = [layer.weight for layer in compiled.layers]
    plans = []
    for count in STAGES:
        if count <= len(compiled.legal_cuts) + 1:
            plans.append(seed(weights, machine.places, stage_count=count, legal_cuts=compiled.legal_cuts))
            cuts = sorted(generator.sample(sorted(compiled.legal_cuts), count - 1))
            places = generator.sample([place.name for place in machine.places], count)
            firsts, lasts = [0, *(cut + 1 for cut in cuts)], [*cuts, len(weights) - 1]
            plans.append(Plan.of(zip(firsts, lasts, places, strict=True)))
    return plans


def compare(name: str, machine: Machine, frames: int) -> Comparison:
    """Send the same frames under every plan, and compare each answer with the whole graph's."""
    path = with_logits(name)
    compiled = compile_model(path)
    inputs = [random_inputs(compiled, seed) for seed in range(frames)]
    expected = _whole(compiled, inputs)
    plans = plans_of(compiled, machine, random.Random(name))
    errors: list[float] = []
    with (
        child_process(
            "benchmarks.rigs.daemon_process", model=str(path), machine=machine.source, endpoint="tcp://127.0.0.1:0"
        ) as (_, up),
        Client(up["endpoint"], timeout_s=120.0) as client,
    ):
        for plan in plans:
            settled = client.set_plan(plan)
            if settled["outcome"] != "live":
                raise RuntimeError(f"{plan} is {settled['outcome']}: {settled['reason']}")
            for answer, right in zip(client.stream().run(inputs), expected, strict=True):
                if answer.epoch != settled["epoch"]:
                    raise RuntimeError(f"an answer of epoch {answer.epoch} under epoch {settled['epoch']}")
                errors.append(_difference(answer.outputs, right))
    return Comparison(
        model=name,
        layer_count=len(compiled.layers),
        legal_cuts=len(compiled.legal_cuts),
        outputs=len(expected[0]),
        plans=len(plans),
        answers=len(errors),
        equal=sum(error == 0 for error in errors),
        worst=max(errors),
        input_effect=min(_difference(expected[0], other) for other in expected[1:]),
    )


def _whole(compiled: Compiled, inputs: Sequence[Outputs]) -> list[Outputs]:
    """Answers of the whole optimised graph, run without daemon or worker."""
    folder = compiled.engine_folder
    session = ort.InferenceSession(
        str(folder / MODEL_FILE), as_built_options(str(folder)), providers=["CPUExecutionProvider"]
    )
    names = [tensor.name for tensor in compiled.model.graph.outputs]
    return [dict(zip(names, session.run(names, frame), strict=True)) for frame in inputs]


def _difference(one: Mapping[str, np.ndarray[Any, Any]], other: Outputs) -> float:
    """The largest difference in any output; 0 only if all bits are the same."""
    if all(one[name].tobytes() == array.tobytes() for name, array in other.items()):
        return 0.0
    difference = max(float(np.max(np.abs(one[name] - array))) for name, array in other.items())
    return difference or float(np.finfo(np.float64).tiny)  # signs of zeros, or NaN payloads


def _row(comparison: Comparison) -> Row:
    c = comparison
    return {
        "model": c.model,
        "layers": c.layer_count,
        "legal cuts": f"{c.legal_cuts} of {c.layer_count - 1}",
        "outputs": c.outputs,
        "plans": c.plans,
        "answers": c.answers,
        "bitwise equal": c.equal,
        "worst difference": c.worst,
        "between two inputs": c.input_effect,
    }


def answers(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = ",".join(SHIPPED),
    machine: Annotated[str, typer.Option(help="A machine file or a shipped name.")] = MACHINE,
    frames: Annotated[int, typer.Option(min=2, help="Frames under each plan.")] = 3,
) -> None:
    """Answers through the daemon against the whole optimised graph, bit for bit."""
    places = load_machine(machine)
    about = facts(f"answers --models {models} --machine {machine}")
    rows = []
    for model in models.split(","):
        print(f"answers: {model} ...", flush=True)
        rows.append(_row(compare(model, places, frames)))
    show(
        "Answers through the daemon against the whole optimised graph",
        rows,
        ["two outputs: the answer, and what goes into its Softmax"],
    )
    print(f"written to {save_csv('answers', rows, about)}")


if __name__ == "__main__":
    typer.run(answers)
