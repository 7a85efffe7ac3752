"""Device descriptions: what is read, and the one line that each kind of mistake gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from shisha_rt.errors import BadInput
from shisha_rt.machine.config import load_machine, parse_machine, shipped_configs
from shisha_rt.machine.device import Condition, Device, Family, Term, Transfer
from shisha_rt.machine.devices import devices_of, parse_device

HEAD = 'engine = "onnxruntime"\nmemory = "m"\nprecision = "fp32"\ncall_s = 1e-6\n'
ADD = '[[family]]\nops = ["Add"]\ncost = []\n'
LINK = "latency_s = 1e-6\nbandwidth_bytes_per_s = 1e9\n"


def parse(content: str) -> Device:
    return parse_device(content, name="d", source="d.toml")


def family(ops: str, extra: str = "cost = []") -> str:
    return f"{HEAD}[[family]]\nops = {ops}\n{extra}\n"


def test_the_least_description_is_of_the_host() -> None:
    assert parse(HEAD + ADD) == Device(
        name="d",
        source="d.toml",
        engine="onnxruntime",
        memory="m",
        precision="fp32",
        call_s=1e-6,
        families=(Family(frozenset({"Add"}), (), ()),),
    )


def test_every_key_is_read() -> None:
    device = parse(
        """
        engine = "onnxruntime"
        memory = "pim"
        precision = "bf16"
        datatypes = ["FP32", "FP16"]
        max_rank = 3
        call_s = 0
        [[family]]
        ops = ["Gemm"]
        where = { transB = 1, transA = 0 }
        cost = [{ seconds = 2e-9, rows = 1, inner = 0.5 }, { seconds = 1 }]
        [[family]]
        ops = ["*"]
        cost = [{ seconds = 3e-9, bytes_out = 1 }]
        [transfer_in]
        latency_s = 1e-6
        bandwidth_bytes_per_s = 1e9
        [transfer_out]
        latency_s = 2e-6
        bandwidth_bytes_per_s = 5e8
        """
    )
    assert (device.memory, device.precision, device.max_rank, device.call_s) == ("pim", "bf16", 3, 0)
    assert device.datatypes == {"FP32", "FP16"}
    gemm, others = device.families
    assert gemm.conditions == (Condition("transB", 1, default=0), Condition("transA", 0, default=0))
    assert gemm.terms == (Term(2e-9, (("rows", 1.0), ("inner", 0.5))), Term(1.0))
    assert others == Family(frozenset(), (), (Term(3e-9, (("bytes_out", 1.0),)),))
    assert (device.transfer_in, device.transfer_out) == (Transfer(1e-6, 1e9), Transfer(2e-6, 5e8))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("= 3", "not TOML: "),
        ("", "engine is missing"),
        (HEAD, "family is missing"),
        ("family = []\n" + HEAD, "family = []: expected a list of length >= 1"),
        (HEAD.replace("onnxruntime", "brainwave") + ADD, 'engine = "brainwave": '),
        (HEAD.replace("fp32", "int4") + ADD, 'precision = "int4": '),
        (HEAD.replace("1e-6", "-1") + ADD, "call_s = -1: expected a number >= 0"),
        (HEAD.replace("1e-6", "inf") + ADD, "call_s = Infinity: expected a finite number"),
        (HEAD + "colour = 1\n" + ADD, "colour = 1: unknown key, expected one of engine, memory"),
        (HEAD + 'datatypes = ["FLOAT"]\n' + ADD, 'datatypes: "FLOAT": no such datatype, expected among BOOL, '),
        (HEAD + "max_rank = -1\n" + ADD, "max_rank = -1: expected a whole number >= 0"),
        (family("[]"), "family[0].ops = []: expected a list of length >= 1"),
        (family('["Add"]', ""), "family[0].cost is missing"),
        (family('["Add"]', "cost = [{ elements_out = 1 }]"), "family[0].cost[0].seconds is missing"),
        (family('["Add"]', "cost = [{ seconds = -1 }]"), "family[0].cost[0].seconds = -1: expected a number >= 0"),
        (
            family('["Add"]', "cost = [{ seconds = 1, depth = 1 }]"),
            "family[0].cost[0].depth = 1: unknown key, expected",
        ),
        (
            family('["MatMul"]', "cost = [{ seconds = 1, rows = 9 }]"),
            "family[0].cost[0].rows = 9: expected a number <= 4",
        ),
        (family('["Add"]', "cost = [{ seconds = 1, rows = 1 }]"), "family[0].cost[0].rows: only products have it"),
        (family('["*"]', "cost = [{ seconds = 1, inner = 1 }]"), "family[0].cost[0].inner: only products have it"),
        (family('["Matmul"]'), 'family[0].ops: "Matmul": no operator of ONNX, expected names such as MatMul'),
        (family('["Add", "Add"]'), "family[0].ops: Add: is covered already, expected it once"),
        (HEAD + ADD + ADD, "family[1].ops: Add: is covered already"),
        (family('["*"]') + ADD, 'family[0].ops = ["*"]: "*" is all other operators, expected it alone in the last'),
        (family('["Add", "*"]'), 'family[0].ops = ["Add", "*"]: "*" is all other operators'),
        (
            family('["Gemm"]', "where = { transC = 1 }\ncost = []"),
            "family[0].where.transC: no such attribute of Gemm, expected one of transA, transB",
        ),
        (
            family('["Gemm", "Add"]', "where = { transB = 1 }\ncost = []"),
            "family[0].where.transB: no such attribute of Add, expected none: it has no whole-number ones",
        ),
        (
            HEAD + ADD + "[transfer_in]\nlatency_s = -1\nbandwidth_bytes_per_s = 1\n",
            "transfer_in.latency_s = -1: expected a number >= 0",
        ),
        (
            HEAD + ADD + "[transfer_in]\nlatency_s = 0\nbandwidth_bytes_per_s = 0\n",
            "transfer_in.bandwidth_bytes_per_s = 0: expected a number > 0",
        ),
        (HEAD + ADD + "[transfer_in]\n" + LINK, "transfer_out is missing: expected both, or neither"),
        (HEAD + ADD + "[transfer_out]\n" + LINK, "transfer_in is missing: expected both, or neither"),
    ],
)
def test_one_line_for_each_mistake(content: str, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(content)
    message = str(caught.value)
    assert message.startswith(f"d.toml: {expected}")
    assert "\n" not in message


def test_conditional_families_may_repeat_an_operator() -> None:
    both = family('["Gemm"]', "where = { transB = 1 }\ncost = []") + '[[family]]\nops = ["Gemm"]\ncost = []\n'
    assert [len(found.conditions) for found in parse(both).families] == [1, 0]


class TestDevicesOfAPlace:
    @staticmethod
    def devices(folder: Path, listed: str) -> tuple[Device, ...]:
        content = f"[[place]]\nname = 'a'\ncores = [0]\n{listed}"
        machine = parse_machine(content, name="m", source=str(folder / "m.toml"))
        return devices_of(machine, machine.places[0])

    def test_shipped_names_and_paths_from_the_machine_file_s_folder(self, tmp_path: Path) -> None:
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "npu.toml").write_text(HEAD + ADD)
        found = self.devices(tmp_path, "devices = ['sub/npu.toml', 'pim']")
        assert [device.name for device in found] == ["npu", "pim"]

    @pytest.mark.parametrize(
        ("listed", "expected"),
        [
            ("", "m.toml: place a has no devices, expected devices = [...] in it"),
            (
                "devices = ['tpu']",
                'm.toml: place a: device "tpu": no such shipped name, expected a TOML file or one of',
            ),
            (
                "devices = ['./pim.toml']",
                "pim.toml: cannot be read (No such file or directory), expected a TOML device",
            ),
            ("devices = ['mine.toml', 'sub/mine.toml']", "m.toml: place a: devices has two called mine, expected"),
        ],
    )
    def test_refused(self, tmp_path: Path, listed: str, expected: str) -> None:
        (tmp_path / "sub").mkdir()
        for path in (tmp_path / "mine.toml", tmp_path / "sub" / "mine.toml"):
            path.write_text(HEAD + ADD)
        with pytest.raises(BadInput) as caught:
            self.devices(tmp_path, listed)
        assert expected in str(caught.value)


@pytest.mark.parametrize("name", sorted(shipped_configs("devices")))
def test_shipped_descriptions_say_that_they_are_models(name: str) -> None:
    content = shipped_configs("devices")[name].read_text()
    assert parse_device(content, name=name, source=name).families
    assert "not a measurement" in " ".join(line.strip("# ") for line in content.splitlines() if line.startswith("#"))


def test_the_shipped_board() -> None:
    machine = load_machine("pim-board")
    assert machine.on_paper
    assert [(d.name, d.memory) for d in devices_of(machine, machine.places[0])] == [
        ("cpu_s", "dram"),
        ("cpu_p", "dram"),
        ("pim", "pim"),
    ]
