"""Programs as text: the schedule as in the paper's Figure 5, names of any kind, a style that tools accept."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.machine.device import Device, Family
from shisha_rt.messages.program_parts import ProgramPart
from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.papers.partitiontuner.program import check_part_sizes, stages_before
from shisha_rt.papers.partitiontuner.program_text import MARK, Processor, Program, WrittenPartition, program_text
from shisha_rt.plan.plan import Plan, Stage
from tests.wording import raised

CPU = Device("a53", "", "onnxruntime", "dram", "fp32", families=(Family(frozenset(), (), ()),))
NPU = replace(CPU, name="evta", memory="npu", precision="int8")


def figure_5(*devices: Device, emulated: bool = True) -> Program:
    """p2 and p3 of the paper's figure side by side, numbered from 0."""
    places = tuple(
        Processor(name, (core,), 1, 1.0, device, emulated)
        for core, (name, device) in enumerate(zip(("cpu", "npu"), devices, strict=True))
    )
    return Program(
        "net on board by partitiontuner",
        (Tensor("x", (1, 3, 8, 8), "FP32"), Tensor("n", (), "INT64")),
        ("y",),
        places,
        (
            WrittenPartition("p0", "cpu", ("p0.onnx",), (), (), (("v1", "v2"),), 3e-3),
            WrittenPartition("p1", "npu", ("p1.onnx",), ("p0",), ("p2",), (("v3", "v5"),), 4.5e-3),
            WrittenPartition(
                "p2", "cpu", ("p2.0.onnx", "p2.1.onnx"), (), ("p1",), (("v6", "v6"), ("v7", "v7")), 1.5e-3
            ),
            WrittenPartition("p3", "cpu", ("p3.onnx",), ("p1",), (), (("v8", "v8"),), 5e-3),
        ),
        2.0 if emulated else 1.0,
        12.5e-3,
    )


def assert_styled(text: str, folder: Path) -> None:
    """As ruff has it by default."""
    ast.parse(text)
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    ruff = Path(sys.executable).with_name("ruff")
    if ruff.exists():
        for command in (("format", "--diff"), ("check",)):
            process = subprocess.run([ruff, *command, "--isolated", "--quiet", path], capture_output=True, text=True)
            assert (process.returncode, process.stdout) == (0, "")


def test_the_schedule_and_the_code() -> None:
    text = program_text(figure_5(CPU, NPU))
    assert text.startswith(f"{MARK}\n")
    for line in (
        "#   p0   cpu: a53   3.000 ms  v1 to v2",
        "#   p1 | npu: evta  4.500 ms  v3 to v5 (beside p2)",
        "#   p2 | cpu: a53   1.500 ms  v6, v7 (beside p1)",
        "#   p3   cpu: a53   5.000 ms  v8",
        '    p2 = place.load("p2", "p2.0.onnx", "p2.1.onnx", takes_s=0.0015)',
        '        p1(frame, after=["p0"])',
        "        p2(frame)",
        '        p3(frame, after=["p1"])',
        "        Place(on_cpu, load_onnxruntime, cores=[0], threads=1),",
        "        Place(on_npu, load_as_it_stands, cores=[1], threads=1),",
        '    "n": ((), "int64"),',
    ):
        assert f"\n{line}\n" in text
    assert "\nTIME_SCALE = 2.0 " in text


@pytest.mark.parametrize(
    ("devices", "emulated", "imported"),
    [
        ((CPU, NPU), True, {"onnxruntime", "shisha_rt.emulated"}),
        ((replace(CPU, families=()), replace(CPU, families=())), False, {"onnxruntime"}),
        ((replace(CPU, engine="openvino"), replace(NPU, engine="openvino")), True,
         {"openvino", "onnxruntime", "shisha_rt.emulated"}),
        ((replace(CPU, families=(), engine="openvino"), replace(CPU, engine="openvino", precision="bf16")), False,
         {"openvino"}),
    ],
    ids=["int8", "real", "two engines", "openvino"],
)  # fmt: skip
def test_style_and_imports(devices: tuple[Device, Device], emulated: bool, imported: set[str], tmp_path: Path) -> None:
    text = program_text(figure_5(*devices, emulated=emulated))
    assert_styled(text, tmp_path)
    packages = {name for name in _imports(text) if name.partition(".")[0] not in sys.stdlib_module_names}
    assert packages == {"numpy", *imported}


def _imports(text: str) -> set[str]:
    tree = ast.walk(ast.parse(text))
    names = [[node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
             for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]  # fmt: skip
    return {name for imported in names for name in imported}


def test_names_of_any_kind(tmp_path: Path) -> None:
    """None of them becomes code, and places that differ in signs alone have functions of their own."""
    program = figure_5(CPU, NPU)
    ugly = 'a"\n\'\\ """é\x00#' + 50 * "x"
    cpu, npu = program.processors
    partitions = [
        replace(partition, place={"cpu": "core-0", "npu": "core 0"}[partition.place], operators=((ugly, ugly),))
        for partition in program.partitions
    ]
    partitions[2] = replace(partitions[2], place="core-0-2")
    partitions[3] = replace(partitions[3], after=tuple(f"p{number}" for number in range(40)))
    text = program_text(
        replace(
            program,
            title=ugly,
            inputs=(Tensor(ugly, (2,), "FP16"),),
            outputs=("o'", 'o"'),
            processors=(
                replace(npu, name="core-0-2", cores=(3,)),
                replace(cpu, name="core-0", cores=tuple(range(0, 128, 2)), speed=0.3),
                replace(npu, name="core 0", cores=tuple(range(8))),
            ),
            partitions=tuple(partitions),
        )
    )
    assert_styled(text, tmp_path)
    defined = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert defined[:3] == ["on_core_0_2", "on_core_0", "on_core_0_3"]
    values = {ast.unparse(node.targets[0]): node.value for node in ast.parse(text).body if isinstance(node, ast.Assign)}
    assert ast.literal_eval(values["INPUTS"]) == {ugly: ((2,), "float16")}
    assert ast.literal_eval(values["OUTPUTS"]) == ["o'", 'o"']


def test_a_part_beyond_what_an_onnx_file_holds() -> None:
    weight = Tensor("w", (2**29, 1), "FP32")
    gemm = Operator("gemm", "MatMul", "", ("x", "w"), ("y",), {})
    x, y = Tensor("x", (1, 2**29), "FP32"), Tensor("y", (1, 1), "FP32")
    graph = Graph("net", (gemm, replace(gemm, outputs=("z",))), (x,), (y,), {"x": x, "y": y}, {"w": weight})
    with raised(BadInput, Error.WRONG_OPTION, match=r"p7\.onnx .* 2\.0 GiB .* 2 GiB"):
        check_part_sizes(graph, [ProgramPart("p7.onnx", 0, 1, CPU)])


def test_a_stage_that_reads_what_a_later_one_makes() -> None:
    """No program runs it: its place waits for a partition that comes after."""
    x, y, z = (Tensor(name, (1,), "FP32") for name in "xyz")
    relus = tuple(Operator(made, "Relu", "", (read,), (made,), {}) for read, made in ("xy", "yz"))
    graph = Graph("net", relus, (x,), (z,), {"x": x, "y": y, "z": z}, {})
    plan = Plan((Stage(((1, 1),), (("cpu",),)), Stage(((0, 0),), (("npu",),))))
    with raised(Failure, Error.PLAN_UNFIT, match="stage 0"):
        stages_before(graph, plan, [stage.work for stage in plan.stages])
    in_order = Plan(plan.stages[::-1])
    assert stages_before(graph, in_order, [stage.work for stage in in_order.stages]) == [set(), {0}]
