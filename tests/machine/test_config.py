"""Machine files: what is read, and the one line that each kind of mistake gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.machine_file import check_runnable, load_machine, parse_machine
from shisha_rt.machine.config.shipped import shipped_configs
from shisha_rt.machine.machine import Machine, Memory, Place, Remote
from tests.wording import raised, says


def parse(content: str) -> Machine:
    return parse_machine(content, name="m", source="m.toml")


def fault(content: str) -> str:
    with pytest.raises(BadInput) as caught:
        parse(content)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("m.toml: ")
    assert "regex" not in message
    return message.removeprefix("m.toml: ")


def place(extra: str, *, name: str = "a", cores: str = "cores = [0]") -> str:
    return f'[[place]]\nname = "{name}"\n{cores}\n{extra}\n'


def test_the_least_file_gets_every_default() -> None:
    machine = parse('[[place]]\nname = "a"\ncores = [3, 1]\n')
    assert machine == Machine(
        name="m",
        source="m.toml",
        memories=(Memory("ram"),),
        places=(Place("a", cores=(3, 1), core_count=2, threads=2, speed=1.0, rank=1, memory="ram"),),
    )


def test_every_key_is_read() -> None:
    machine = parse(
        """
        timing = "modelled"
        time_scale = 4
        [[memory]]
        name = "hbm"
        bandwidth_bytes_per_s = 4e9
        [[memory]]
        name = "ddr"
        [[place]]
        name = "fast0"
        core_count = 8
        threads = 4
        speed = 0.5
        rank = 2
        memory = "ddr"
        memory_bytes = 1000
        shared = true
        devices = ["cpu_s", "boards/npu.toml"]
        """
    )
    assert machine.timing == "modelled"
    assert machine.time_scale == 4.0
    assert machine.memories == (Memory("hbm", 4e9), Memory("ddr"))
    devices = ("cpu_s", "boards/npu.toml")
    assert machine.places == (Place("fast0", (), 8, 4, 0.5, 2, "ddr", memory_bytes=1000, shared=True, devices=devices),)


def test_the_only_memory_is_the_default_one() -> None:
    assert parse('[[memory]]\nname = "hbm"\n' + place("")).places[0].memory == "hbm"


def test_a_whole_number_may_be_written_as_one_with_a_point() -> None:
    (parsed,) = parse(place("rank = 2.0\nspeed = 0.5\nmemory_bytes = 17179869184.0", cores="cores = [1.0]")).places
    assert (parsed.rank, parsed.speed, parsed.memory_bytes, parsed.cores) == (2, 0.5, 17179869184, (1,))
    assert isinstance(parsed.memory_bytes, int)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "no [[place]]"),
        ("place = []", "no [[place]]"),
        ("place = 3", "place = 3"),
        ("colour = 1\n", "colour = 1: unknown key"),
        (place("colour = 'red'"), 'place[0].colour = "red": unknown key'),
        (
            "[[memory]]\nname = 'x'\nlatency = 1\n",
            "memory[0].latency = 1: unknown key",
        ),
        ("[[place]]\ncores = [0]\n", "place[0].name is missing"),
        (place("", name="a b"), 'place[0].name = "a b": expected text'),
        (place("", name=""), 'place[0].name = "": expected text'),
        (place("", name=r"a\n"), r'place[0].name = "a\n": expected text'),
        ("[[place]]\nname = 3\ncores = [0]\n", "place[0].name = 3"),
        (place("speed = 'fast'"), 'place[0].speed = "fast"'),
        (place("speed = 0"), "place[0].speed = 0: expected a number >= "),
        (place("speed = -0.5"), "place[0].speed = -0.5: expected a number >= "),
        (place("speed = 1.5"), "place[0].speed = 1.5: expected a number <= 1"),
        (place("speed = nan"), "place[0].speed = NaN: expected a number >= "),
        (place("rank = 0"), "place[0].rank = 0"),
        (place("rank = 1.5"), "place[0].rank = 1.5"),
        (place("rank = true"), "place[0].rank = true"),
        (place(f"rank = {10**20}"), f"place[0].rank = {10**20}: … <= {2**53}"),
        (place("memory_bytes = 1e25"), f"place[0].memory_bytes = 1e+25: … <= {2**53}"),
        (place("threads = 0"), "place[0].threads = 0"),
        (place("threads = 2"), "place[0] (a): threads = 2"),
        (place("threads = 9", cores="core_count = 8"), "place[0] (a): threads = 9"),
        (place("memory_bytes = -1"), "place[0].memory_bytes = -1"),
        (place("memory = 'hbm'"), 'place[0] (a): memory = "hbm": unknown memory'),
        (place("shared = 1"), "place[0].shared = 1"),
        (
            place("devices = ['pim', 'cpu_s', 'pim']"),
            'place[0] (a): devices = ["pim", "cpu_s", "pim"]: pim is listed 2',
        ),
        (place("devices = []"), "place[0].devices = []"),
        (place("devices = 'pim'"), 'place[0].devices = "pim"'),
        (place("", cores=""), "place[0] (a): neither of … and core_count"),
        (place("core_count = 1"), "place[0] (a): both of … and core_count"),
        (place("", cores="core_count = 0"), "place[0].core_count = 0"),
        (place("", cores="cores = []"), "place[0].cores = []"),
        (place("", cores="cores = [-1]"), "place[0].cores[0] = -1"),
        (place("", cores=f"cores = [{10**20}]"), f"place[0].cores[0] = {10**20}"),
        (place("", cores="cores = [2, 0, 2]"), "place[0] (a): cores = [2, 0, 2]: core 2 is listed 2 times"),
        (place("") + place("", cores="cores = [1]"), 'place[1].name = "a": used twice'),
        ("[[memory]]\nname='x'\n[[memory]]\nname='x'\n" + place("memory='x'"), 'memory[1].name = "x": used twice'),
        (
            "[[memory]]\nname='x'\n[[memory]]\nname='y'\n" + place(""),
            "place[0] (a): memory is missing: expected one of",
        ),
        (
            "[[memory]]\nname = 'x'\nbandwidth_bytes_per_s = 0\n",
            "memory[0].bandwidth_bytes_per_s = 0: expected a number >= ",
        ),
        (
            "[[memory]]\nname = 'x'\nbandwidth_bytes_per_s = inf\n",
            "memory[0].bandwidth_bytes_per_s = Infinity",
        ),
        (f"time_scale = 1{'0' * 400}\n", "time_scale = 1000000"),
        ("time_scale = 0\n", "time_scale = 0: expected a number >= 1e-06"),
        ("engine = 'tvm'\n", 'engine = "tvm": expected "auto", "onnxruntime" or "openvino"'),
        ("timing = 'guessed'\n", 'timing = "guessed"'),
        ("timing = 2024-01-01\n", 'timing = "2024-01-01": expected text'),
        ("[[place]\n", "not TOML: Expected ']]' at the … line 1, column 8)"),
        ("\n\nname = \n", "not TOML: Invalid value … line 3, column 8)"),
        ("a = " + "[" * 5000, "nested too deeply"),
    ],
)
def test_one_line_says_what_to_mend(content: str, expected: str) -> None:
    assert fault(content) == says(expected + "…")


class TestSharedCores:
    def test_an_unthrottled_place_shares_no_core(self) -> None:
        message = fault(place("") + place("speed = 0.2", name="b"))
        assert message == says("core 0 is used … a, b, but a … speed = 1 (unthrottled)…")

    def test_not_even_with_a_place_that_would_not_mind(self) -> None:
        assert "a has speed = 1" in fault(place("") + place("shared = true", name="b"))

    def test_two_unthrottled_places_on_one_core(self) -> None:
        assert "core 1 is used" in fault(
            place("", cores="cores = [0, 1]") + place("", name="b", cores="cores = [1, 2]")
        )

    def test_places_that_say_shared_may_share(self) -> None:
        assert len(parse(place("shared = true") + place("shared = true", name="b")).places) == 2

    @pytest.mark.parametrize(("speeds", "total"), [((0.9,), "0.9"), ((0.6, 0.3), "0.9"), ((0.3, 0.3, 0.3), "0.9")])
    def test_pinned_speeds_leave_room_on_each_core(self, speeds: tuple[float, ...], total: str) -> None:
        message = fault("".join(place(f"speed = {speed}", name=f"p{i}") for i, speed in enumerate(speeds)))
        assert message.startswith("core 0: the speeds of p0")
        assert f"add up to {total}, expected at most 0.85" in message

    def test_the_limit_itself_is_allowed_in_spite_of_rounding(self) -> None:
        assert 0.65 + 0.2 > 0.85
        assert len(parse(place("speed = 0.65") + place("speed = 0.2", name="b")).places) == 2

    def test_shared_places_are_not_counted(self) -> None:
        parse(place("speed = 0.8") + place("speed = 0.8\nshared = true", name="b"))


class TestFinding:
    def test_a_path(self, tmp_path: Path) -> None:
        file = tmp_path / "board.toml"
        file.write_text(place(""))
        machine = load_machine(str(file))
        assert (machine.name, machine.source) == ("board", str(file))

    def test_a_file_without_suffix_in_this_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "board").write_text(place(""))
        monkeypatch.chdir(tmp_path)
        assert load_machine("board").name == "board"

    def test_this_machine(self) -> None:
        check_runnable(load_machine("this-machine"))

    @pytest.mark.parametrize("name", sorted(shipped_configs("machines")))
    def test_every_shipped_file_loads(self, name: str) -> None:
        machine = load_machine(name)
        assert machine.name == name
        assert machine.source.endswith(f"configs/machines/{name}.toml")

    def test_these_machines_run_on_two_cores(self) -> None:
        for name, count in (("shared-2", 2), ("shared-4", 4), ("two-engines", 2), ("pim-2", 1)):
            machine = load_machine(name)
            assert len(machine.places) == count
            check_runnable(machine, available={0, 1})

    def test_an_unknown_name_lists_those_that_exist(self) -> None:
        with raised(BadInput, Error.UNKNOWN_MACHINE, match=r"one of this-machine, .*shared-2, shared-4"):
            load_machine("nope")

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with raised(BadInput, Error.UNREADABLE_FILE, match=r"no\.toml: cannot be read"):
            load_machine(str(tmp_path / "no.toml"))

    def test_a_folder(self, tmp_path: Path) -> None:
        with raised(BadInput, Error.UNREADABLE_FILE, match="cannot be read"):
            load_machine(str(tmp_path))

    def test_a_name_that_a_terminal_would_obey(self, tmp_path: Path) -> None:
        file = tmp_path / "red\x1b[31m.toml"
        file.write_text(place(""))
        with raised(BadInput, Error.UNREADABLE_FILE, match="not printable"):
            load_machine(str(file))

    def test_not_text(self, tmp_path: Path) -> None:
        file = tmp_path / "m.toml"
        file.write_bytes(b"\xff\xfe")
        with raised(BadInput, Error.MALFORMED_FILE, match="not UTF-8"):
            load_machine(str(file))


class TestRunnable:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (place("", cores="cores = [7]"), "place a: core 7 may not be"),
            (place("", cores="core_count = 2"), "place a: only core_count is given"),
        ],
    )
    def test_refused(self, content: str, expected: str) -> None:
        with raised(BadInput, Error.MACHINE_UNFIT) as caught:
            check_runnable(parse(content), available={0, 1})
        assert str(caught.value).startswith(f"m.toml: {expected}")

    @pytest.mark.parametrize(
        "content",
        [
            place("speed = 0.5"),
            "[[memory]]\nname='x'\nbandwidth_bytes_per_s=1e9\n" + place(""),
            "time_scale = 2\n" + place(""),
            "timing = 'modelled'\n" + place(""),
            place("devices = ['pim']"),
        ],
    )
    def test_emulated_places_and_devices_run(self, content: str) -> None:
        check_runnable(parse(content), available={0})

    def test_the_affinity_mask_decides(self) -> None:
        core = min(os.sched_getaffinity(0))
        check_runnable(parse(place("", cores=f"cores = [{core}]")))
        with raised(BadInput, Error.MACHINE_UNFIT, match="core 100000 may not be"):
            check_runnable(parse(place("", cores="cores = [100000]")))


FAR = '[[place]]\nname = "far"\nhost = "ray"\n'


class TestPlacesOnOtherHosts:
    def test_what_they_ask_of_the_cluster(self) -> None:
        keys = 'cpus = 4\nthreads = 3\nnode = "10.0.0.2"\nmemory_bytes = 9\n'
        tables = "resources = { npu = 1, box = 0.5 }\nlabels = { zone = 'b' }\n"
        machine = parse(place("") + FAR + keys + tables)
        far = machine.place("far")
        assert far.remote == Remote(4, (("box", 0.5), ("npu", 1.0)), "10.0.0.2", (("zone", "b"),))
        assert (far.cores, far.core_count, far.threads, far.memory_bytes) == ((), 4, 3, 9)
        assert machine.remote == (far,)
        assert machine.bandwidth_bytes_per_s(far) is None
        assert not machine.is_emulated(far)

    def test_by_default_a_cpu(self) -> None:
        assert parse(FAR).place("far").remote == Remote()

    def test_they_need_no_cores_here_and_form_no_teams(self) -> None:
        machine = parse(FAR + FAR.replace('"far"', '"further"'))
        check_runnable(machine, available={0})
        assert machine.teams == ()

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (FAR.replace("ray", "k8s"), 'place[0] (far): host = "k8s"'),
            (FAR + "cores = [1]", "place[0] (far): cores: it is for"),
            (FAR + "devices = ['ort_serial']", "place[0] (far): devices: it is for"),
            (FAR + "threads = 2\ncpus = 1", "place[0] (far): threads = 2"),
            (FAR + "resources = { npu = 0 }", "place[0].resources.npu = 0: expected a number >= 0.0001"),
            (FAR + "resources = { CPU = 1 }", 'place[0] (far): resources has "CPU"'),
            (FAR + 'resources = { "" = 1 }', 'place[0] (far): resources has ""'),
            (FAR + "resources = { npu = 1.5 }", "place[0] (far): resources.npu = 1.5: Ray gives out"),
            (place("cpus = 1"), "place[0] (a): cpus: it is for"),
            ("time_scale = 2\n" + FAR, "time_scale = 2"),
            ("[[memory]]\nname = 'remote'\n" + FAR, 'memory "remote": the name is'),
        ],
    )
    def test_refused(self, content: str, expected: str) -> None:
        assert fault(content).startswith(expected)
