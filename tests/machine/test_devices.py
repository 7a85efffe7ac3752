"""Device descriptions: what is read, and the one line that each kind of mistake gets."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.device_files import devices_of, parse_device, running_devices
from shisha_rt.machine.config.machine_file import load_machine, parse_machine
from shisha_rt.machine.config.shipped import shipped_configs
from shisha_rt.machine.device import (
    Condition,
    Device,
    Family,
    Fusion,
    Multiple,
    Power,
    Resource,
    Term,
    Transfer,
)
from tests.wording import raised, says

MEASURED = 'engine = "onnxruntime"\nprecision = "fp32"\n'
HEAD = MEASURED + 'memory = "m"\ncall_s = 1e-6\n'
ADD = '[[family]]\nops = ["Add"]\ncost = []\n'
LINK = "latency_s = 1e-6\nbandwidth_bytes_per_s = 1e9\n"


def parse(content: str) -> Device:
    return parse_device(content, name="d", source="d.toml")


RESOURCE = '[[resource]]\nname = "ALM"\nlimit = 10\nuse = [{ amount = 1 }]\n'
BOTH_LINKS = f"[transfer_in]\n{LINK}[transfer_out]\n{LINK}"
DIRECT = f'[[link]]\nmemory = "other"\n{LINK}'
FUSED = '[[fused]]\nops = ["Add", "Relu"]\n'


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
        threads = 2
        datatypes = ["FP32", "FP16"]
        max_rank = 3
        call_s = 0
        power_w = 4
        transfer_power_w = 2.5
        [[family]]
        ops = ["Gemm"]
        where = { transB = 1, transA = 0 }
        cost = [{ seconds = 2e-9, rows = 1, inner = 0.5 }, { seconds = 1 }]
        [[family]]
        ops = ["Conv", "ConvTranspose"]
        multiples = { in_channels = 16, filters = 8 }
        cost = []
        [[family]]
        ops = ["Conv"]
        multiples = { filters = 4 }
        cost = []
        [[family]]
        ops = ["*"]
        cost = [{ seconds = 3e-9, bytes_out = 1 }]
        [transfer_in]
        latency_s = 1e-6
        bandwidth_bytes_per_s = 1e9
        [transfer_out]
        latency_s = 2e-6
        bandwidth_bytes_per_s = 5e8
        [[fused]]
        ops = ["Conv", "Relu"]
        [[fused]]
        ops = ["Gemm", "Add", "Relu"]
        cost = [{ seconds = 4e-9, inner = 1 }]
        [[resource]]
        name = "ALM"
        limit = 1e4
        use = [{ amount = 0.5, inner = 1, columns = 1 }, { amount = 7 }]
        """
    )
    assert (device.memory, device.precision, device.max_rank, device.call_s) == ("pim", "bf16", 3, 0)
    assert (device.threads, device.described, device.exact) == (2, True, False)
    assert device.datatypes == {"FP32", "FP16"}
    gemm, conv, fewer, others = device.families
    assert gemm.conditions == (Condition("transB", 1, default=0), Condition("transA", 0, default=0))
    assert gemm.terms == (Term(2e-9, (("rows", 1.0), ("inner", 0.5))), Term(1.0))
    assert conv.multiples == (Multiple("in_channels", 16), Multiple("filters", 8))
    assert fewer == Family(frozenset({"Conv"}), (), (), (Multiple("filters", 4),))
    assert device.fusions == (
        Fusion(("Conv", "Relu")),
        Fusion(("Gemm", "Add", "Relu"), (Term(4e-9, (("inner", 1.0),)),)),
    )
    assert others == Family(frozenset(), (), (Term(3e-9, (("bytes_out", 1.0),)),))
    assert (device.transfer_in, device.transfer_out) == (Transfer(1e-6, 1e9), Transfer(2e-6, 5e8))
    assert device.power == Power(4.0, 2.5)
    used = Term(0.5, (("inner", 1.0), ("columns", 1.0))), Term(7.0)
    assert device.resources == (Resource("ALM", 1e4, used),)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("= 3", "not TOML: "),
        ("", "engine is missing"),
        (MEASURED + "threads = 0\n", "threads = 0"),
        (MEASURED + ADD, "memory is missing: a device with [[family]] is described"),
        (MEASURED + 'memory = "m"\n' + ADD, "call_s is missing: a device with [[family]] is described, expected"),
        ("family = []\n" + HEAD, "family = []"),
        (HEAD.replace("onnxruntime", "brainwave") + ADD, 'engine = "brainwave": '),
        (HEAD.replace("fp32", "int4") + ADD, 'precision = "int4": '),
        (HEAD.replace("1e-6", "-1") + ADD, "call_s = -1: expected a number >= 0"),
        (HEAD.replace("1e-6", "inf") + ADD, "call_s = Infinity"),
        (HEAD + "colour = 1\n" + ADD, "colour = 1: unknown key"),
        (HEAD + 'datatypes = ["FLOAT"]\n' + ADD, 'datatypes: "FLOAT": no such datatype'),
        (HEAD + "max_rank = -1\n" + ADD, "max_rank = -1"),
        (family("[]"), "family[0].ops = []"),
        (family('["Add"]', ""), "family[0].cost is missing"),
        (family('["Add"]', "cost = [{ elements_out = 1 }]"), "family[0].cost[0].seconds is missing"),
        (family('["Add"]', "cost = [{ seconds = -1 }]"), "family[0].cost[0].seconds = -1: expected a number >= 0"),
        (family('["Add"]', "cost = [{ seconds = 1e308 }]"), "family[0].cost[0].seconds = 1e+308: expected a number <="),
        (
            family('["Add"]', "cost = [{ seconds = 1, depth = 1 }]"),
            "family[0].cost[0].depth = 1: unknown key, expected",
        ),
        (
            family('["MatMul"]', "cost = [{ seconds = 1, rows = 9 }]"),
            "family[0].cost[0].rows = 9: expected a number <= 4",
        ),
        (family('["Add"]', "cost = [{ seconds = 1, rows = 1 }]"), "family[0].cost[0].rows: only products have"),
        (family('["*"]', "cost = [{ seconds = 1, inner = 1 }]"), "family[0].cost[0].inner: only products have"),
        (family('["Matmul"]'), 'family[0].ops: "Matmul": no operator of ONNX'),
        (family('["Add", "Add"]'), "family[0].ops: Add: is covered already"),
        (HEAD + ADD + ADD, "family[1].ops: Add: is covered already"),
        (family('["*"]') + ADD, 'family[0].ops = ["*"]: "*" is all other'),
        (family('["Add", "*"]'), 'family[0].ops = ["Add", "*"]: "*" is all other'),
        (
            family('["Gemm"]', "where = { transC = 1 }\ncost = []"),
            "family[0].where.transC: no such attribute",
        ),
        (
            family('["Gemm", "Add"]', "where = { transB = 1 }\ncost = []"),
            "family[0].where.transB: no such attribute",
        ),
        (
            family('["Conv"]', "multiples = { filters = 0 }\ncost = []"),
            "family[0].multiples.filters = 0",
        ),
        (
            family('["Conv"]', "multiples = { rows = 16 }\ncost = []"),
            "family[0].multiples.rows = 16: unknown key",
        ),
        (
            family('["Conv", "Gemm"]', "multiples = { filters = 16 }\ncost = []"),
            "family[0].multiples: Gemm has no",
        ),
        (
            family('["*"]', "multiples = { filters = 16 }\ncost = []"),
            'family[0].ops = ["*"]: "*" is all other',
        ),
        (HEAD + ADD + FUSED.replace(', "Relu"', ""), 'fused[0].ops = ["Add"]'),
        (HEAD + ADD + FUSED.replace("Relu", "ReLU"), 'fused[0].ops: "ReLU": no operator of ONNX, expected names'),
        (HEAD + ADD + FUSED.replace("Relu", "*"), 'fused[0].ops: "*": no operator of ONNX, expected names'),
        (HEAD + ADD + FUSED.replace("Add", "Sub"), "fused[0].ops: Sub: no family has"),
        (HEAD + ADD + FUSED + FUSED, 'fused[1].ops = ["Add", "Relu"]: are fused already'),
        (
            HEAD + ADD + FUSED + "cost = [{ seconds = 1, rows = 1 }]\n",
            "fused[0].cost[0].rows: only products have",
        ),
        (HEAD + ADD + FUSED + 'where = "x"\n', 'fused[0].where = "x": unknown key'),
        (
            HEAD + ADD + "[transfer_in]\nlatency_s = -1\nbandwidth_bytes_per_s = 1\n",
            "transfer_in.latency_s = -1: expected a number >= 0",
        ),
        (
            HEAD + ADD + "[transfer_in]\nlatency_s = 0\nbandwidth_bytes_per_s = 1e-300\n",
            "transfer_in.bandwidth_bytes_per_s = 1e-300: expected a number >= 1",
        ),
        (
            HEAD + ADD + "[transfer_in]\ncolour = 1\n" + LINK,
            "transfer_in.colour = 1: unknown key",
        ),
        (HEAD + ADD + "[transfer_in]\n" + LINK, "transfer_out is missing"),
        (HEAD + ADD + DIRECT, "link[0]: expected [transfer_in] and"),
        (HEAD + ADD + BOTH_LINKS + DIRECT.replace("other", "m"), 'link[0].memory = "m": is the device\'s own'),
        (HEAD + ADD + BOTH_LINKS + DIRECT + DIRECT, 'link[1].memory = "other": is linked already'),
        (HEAD + ADD + BOTH_LINKS + "[[link]]\n" + LINK, "link[0].memory is missing"),
        (HEAD + ADD + "[transfer_out]\n" + LINK, "transfer_in is missing"),
        ("power_w = 0\n" + HEAD + ADD, "power_w = 0: expected a number > 0"),
        ("power_w = 1e308\n" + HEAD + ADD, "power_w = 1e+308: expected a number <= 1000000"),
        (HEAD + ADD + RESOURCE.replace("amount = 1", "amount = 1e308"), "resource[0].use[0].amount = 1e+308: expected"),
        ("power_w = 1\n" + HEAD + ADD + BOTH_LINKS, "transfer_power_w is missing: expected it beside power_w"),
        ("transfer_power_w = 1\n" + HEAD + ADD + BOTH_LINKS, "transfer_power_w"),
        ("power_w = 1\ntransfer_power_w = 1\n" + HEAD + ADD, "transfer_power_w"),
        (HEAD + ADD + RESOURCE.replace("limit = 10\n", ""), "resource[0].limit is missing"),
        (HEAD + ADD + RESOURCE.replace("10", "0"), "resource[0].limit = 0: expected a number > 0"),
        (HEAD + ADD + RESOURCE.replace("{ amount = 1 }", ""), "resource[0].use = []"),
        (HEAD + ADD + RESOURCE.replace("amount", "seconds"), "resource[0].use[0].seconds = 1: unknown key, expected"),
        (HEAD + ADD + RESOURCE.replace("ALM", r"A\n"), r'resource[0].name = "A\n": expected text'),
        (HEAD + ADD + RESOURCE + RESOURCE, 'resource[1].name = "ALM": used twice'),
    ],
)
def test_one_line_for_each_mistake(content: str, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(content)
    message = str(caught.value)
    assert message.startswith(f"d.toml: {expected}")
    assert "\n" not in message


def test_a_direct_link_is_the_same_both_ways() -> None:
    linked, other = (parse(HEAD + ADD + BOTH_LINKS + extra) for extra in (DIRECT, ""))
    other = replace(other, memory="other")
    assert linked.link_with(other) == other.link_with(linked) == linked.links[0].transfer
    assert linked.link_with(linked) is other.link_with(other) is None


def test_a_measured_device_may_state_its_power() -> None:
    assert parse(MEASURED + "power_w = 3.5\n").power == Power(3.5)


@pytest.mark.parametrize("threads", [None, 1, 4])
def test_a_device_without_families_is_measured_and_is_its_own_memory(threads: int | None) -> None:
    device = parse(MEASURED + ("" if threads is None else f"threads = {threads}\n"))
    assert device == Device("d", "d.toml", "onnxruntime", memory="d", precision="fp32", threads=threads)
    assert not device.described
    assert [device.threads_on(place_threads) for place_threads in (1, 8)] == [1, threads or 8]


@pytest.mark.parametrize(
    "extra",
    [
        'memory = "m"',
        "call_s = 0",
        'datatypes = ["FP32"]',
        "max_rank = 3",
        "[transfer_in]\n" + LINK,
        "[transfer_out]\n" + LINK,
        FUSED,
        RESOURCE,
        DIRECT,
    ],
)
def test_a_measured_device_states_nothing_that_is_measured(extra: str) -> None:
    with raised(BadInput, Error.DEVICE_UNFIT) as caught:
        parse(f"{MEASURED}{extra}\n")
    key = extra.partition(" ")[0].partition("\n")[0].strip("[]")
    assert str(caught.value) == says(f"d.toml: {key}: a device without [[family]] is measured, …")


def test_conditional_families_may_repeat_an_operator() -> None:
    both = family('["Gemm"]', "where = { transB = 1 }\ncost = []") + '[[family]]\nops = ["Gemm"]\ncost = []\n'
    assert [len(parsed.conditions) for parsed in parse(both).families] == [1, 0]


class TestDevicesOfAPlace:
    @staticmethod
    def devices(folder: Path, listed: str) -> tuple[Device, ...]:
        content = f"[[place]]\nname = 'a'\ncores = [0]\n{listed}"
        machine = parse_machine(content, name="m", source=str(folder / "m.toml"))
        return devices_of(machine, machine.places[0])

    def test_shipped_names_and_paths_from_the_machine_file_s_folder(self, tmp_path: Path) -> None:
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "npu.toml").write_text(HEAD + ADD)
        listed = self.devices(tmp_path, "devices = ['sub/npu.toml', 'pim']")
        assert [device.name for device in listed] == ["npu", "pim"]

    @pytest.mark.parametrize(
        ("listed", "expected"),
        [
            ("", "m.toml: place a has"),
            (
                "devices = ['tpu']",
                'm.toml: place a: device "tpu": no such shipped',
            ),
            (
                "devices = ['./pim.toml']",
                "pim.toml: cannot be read",
            ),
            ("devices = ['mine.toml', 'sub/mine.toml']", "m.toml: place a: devices has two"),
        ],
    )
    def test_refused(self, tmp_path: Path, listed: str, expected: str) -> None:
        (tmp_path / "sub").mkdir()
        for path in (tmp_path / "mine.toml", tmp_path / "sub" / "mine.toml"):
            path.write_text(HEAD + ADD)
        with pytest.raises(BadInput) as caught:
            self.devices(tmp_path, listed)
        assert expected in str(caught.value)


class TestRunningDevices:
    BF16 = MEASURED.replace("fp32", "bf16")
    OPENVINO = MEASURED.replace("onnxruntime", "openvino")
    BEHIND_TRANSFERS = f"{HEAD}{ADD}[transfer_in]\n{LINK}[transfer_out]\n{LINK}"

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        files = {
            "plain": MEASURED,
            "rounded": self.BF16,
            "foreign": self.OPENVINO,
            "foreign_rounded": self.OPENVINO.replace("fp32", "bf16"),
            "card": self.BEHIND_TRANSFERS,
            "host": HEAD + ADD,
        }
        for name, content in files.items():
            (tmp_path / f"{name}.toml").write_text(content)
        return tmp_path

    @pytest.fixture(autouse=True)
    def installed(self, monkeypatch: pytest.MonkeyPatch) -> set[str]:
        """The engines that are found, whatever this host has."""
        engines = {"onnxruntime", "openvino"}
        monkeypatch.setattr("shisha_rt.machine.config.device_files.is_installed", lambda name: name in engines)
        return engines

    @staticmethod
    def running(folder: Path, *places: str, precision: str = "exact") -> tuple[Device, ...]:
        """What the first of the places runs; each is the names of its devices."""
        content = "".join(
            f"[[place]]\nname = 'p{core}'\ncores = [{core}]\n"
            + (f"devices = {[f'{name}.toml' for name in names.split()]}\n" if names else "")
            for core, names in enumerate(places)
        )
        machine = parse_machine(content, name="m", source=str(folder / "m.toml"))
        return running_devices(machine, machine.places[0], precision)

    @pytest.mark.parametrize(
        ("places", "precision", "expected"),
        [
            (("",), "any", []),
            (("", ""), "exact", []),
            (("", "plain"), "exact", ["ort_parallel"]),
            (("", "card rounded"), "any", ["ort_parallel"]),
            (("plain rounded foreign", ""), "any", ["plain", "rounded", "foreign"]),
            (("plain rounded foreign", ""), "exact", ["plain", "foreign"]),
            (("card host",), "exact", ["card", "host"]),
            (("rounded card",), "any", ["rounded", "card"]),
            (("card", "host"), "exact", ["card"]),
            (("card", ""), "exact", ["card"]),
            (("card", "card", "rounded"), "any", ["card"]),
        ],
    )
    def test_what_a_place_runs(
        self, folder: Path, places: tuple[str, ...], precision: str, expected: list[str]
    ) -> None:
        assert [device.name for device in self.running(folder, *places, precision=precision)] == expected

    def test_a_place_without_devices_keeps_all_its_threads(self, folder: Path) -> None:
        (device,) = self.running(folder, "", "plain")
        assert (device.engine, device.threads, device.described, device.exact) == ("onnxruntime", None, False, True)

    @pytest.mark.parametrize(
        ("places", "precision", "expected"),
        [
            (
                ("rounded foreign_rounded",),
                "exact",
                'precision = "exact" forbids … rounded, foreign_rounded',
            ),
            (
                ("plain foreign",),
                "exact",
                "device foreign: its engine openvino",
            ),
            (
                ("foreign_rounded",),
                "any",
                "device foreign_rounded: its engine openvino",
            ),
            (
                ("card",),
                "any",
                "no device of the host's memory among card, nor at another place",
            ),
            (("card rounded",), "exact", "no device of the host's memory among card, nor at another place"),
            (("card", "rounded card"), "exact", "no device of the host's memory among card, nor at another place"),
        ],
    )
    def test_refused(
        self, folder: Path, installed: set[str], places: tuple[str, ...], precision: str, expected: str
    ) -> None:
        installed.remove("openvino")
        with raised(BadInput, Error.DEVICE_UNFIT) as caught:
            self.running(folder, *places, precision=precision)
        message = str(caught.value)
        assert message == says(f"{folder / 'm.toml'}: place p0: {expected}…")
        assert "\n" not in message

    def test_an_engine_is_not_missed_where_it_is_not_used(self, folder: Path, installed: set[str]) -> None:
        installed.remove("openvino")
        assert [device.name for device in self.running(folder, "plain foreign_rounded")] == ["plain"]


def test_finding_an_engine_does_not_import_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only workers import engines: the control plane would carry their threads and memory along."""
    (tmp_path / "openvino.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "openvino", raising=False)
    machine = load_machine("two-engines")
    running_devices(machine, machine.places[0], "exact")
    assert "openvino" not in sys.modules


@pytest.mark.parametrize("name", sorted(shipped_configs("devices")))
def test_shipped_files_say_whether_they_are_models(name: str) -> None:
    content = shipped_configs("devices")[name].read_text()
    comments = " ".join(line.strip("# ") for line in content.splitlines() if line.startswith("#"))
    described = parse_device(content, name=name, source=name).described
    assert ("not a measurement" in comments) == described
    assert ("Its costs are" in comments) == (not described)


@pytest.mark.parametrize(
    ("name", "engine", "precision", "threads"),
    [
        ("ort_serial", "onnxruntime", "fp32", 1),
        ("ort_parallel", "onnxruntime", "fp32", None),
        ("openvino", "openvino", "fp32", None),
        ("openvino_bf16", "openvino", "bf16", None),
    ],
)
def test_the_shipped_measured_devices(name: str, engine: str, precision: str, threads: int | None) -> None:
    device = parse_device(shipped_configs("devices")[name].read_text(), name=name, source=name)
    assert (device.engine, device.precision, device.threads, device.memory) == (engine, precision, threads, name)


class TestShippedMachines:
    @pytest.mark.parametrize("name", ["pim-board", "pim-2"])
    def test_the_board(self, name: str) -> None:
        machine = load_machine(name)
        (board,) = machine.places
        assert [(d.name, d.memory, d.threads_on(4)) for d in devices_of(machine, board)] == [
            ("cpu_s", "dram", 1),
            ("cpu_p", "dram", 4),
            ("pim", "pim", 4),
        ]

    def test_the_npu_is_a_place_of_its_own_that_changes_results(self) -> None:
        machine = load_machine("npu-board")
        running = [running_devices(machine, place, "any") for place in machine.places]
        assert [
            (place.name, *(device.name for device in devices))
            for place, devices in zip(machine.places, running, strict=True)
        ] == [("cpu", "a53"), ("npu", "evta")]
        with raised(BadInput, Error.DEVICE_UNFIT, match="has no other"):
            running_devices(machine, machine.places[1], "exact")

    def test_cpu_and_gpu_share_a_memory_and_the_fpga_is_behind_a_link(self) -> None:
        machine = load_machine("tx2-cyclone")
        running = [running_devices(machine, place, "any") for place in machine.places]
        assert [
            (device.name, device.memory, device.transfer_in is not None, device.power) for (device,) in running
        ] == [
            ("tx2-cpu", "lpddr4", False, Power(6.0)),
            ("tx2-gpu", "lpddr4", False, Power(9.0)),
            ("cyclone10gx", "fpga", True, Power(4.0, 3.0)),
        ]
        assert machine.emulated

    def test_only_one_board_is_on_paper(self) -> None:
        assert not any(place.cores for place in load_machine("pim-board").places)
        assert load_machine("pim-2").emulated
        assert not load_machine("two-engines").emulated

    @pytest.mark.parametrize(
        ("precision", "expected"), [("exact", ["cpu_s", "cpu_p"]), ("any", ["cpu_s", "cpu_p", "pim"])]
    )
    def test_the_emulated_board_needs_leave_for_its_pim(self, precision: str, expected: list[str]) -> None:
        machine = load_machine("pim-2")
        assert [device.name for device in running_devices(machine, machine.places[0], precision)] == expected
