"""Engines that this host can run, by what is installed and by the processor's flags."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shisha_rt.machine.config.machine_file import load_machine, parse_machine
from shisha_rt.machine.host import processor
from shisha_rt.machine.host.processor import has_bfloat16
from shisha_rt.measure import model_on_machine
from shisha_rt.measure.installed import installed_engines
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.model_on_machine import ModelOnMachine
from tests.serving.identity_model import write_identity_model


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "cpuinfo")
    has_bfloat16.cache_clear()
    yield tmp_path / "cpuinfo"
    has_bfloat16.cache_clear()


@pytest.mark.parametrize(
    ("flags", "has"), [("fma avx512f avx512_bf16", True), ("amx_tile amx_bf16", True), ("avx2 avx512_vnni", False)]
)
def test_bfloat16_is_offered_where_the_processor_has_instructions_for_it(cpuinfo: Path, flags: str, has: bool) -> None:
    pytest.importorskip("openvino")
    cpuinfo.write_text(f"processor\t: 0\nvmx flags\t: amx_bf16\nflags\t\t: {flags}\n")
    assert has_bfloat16() is has
    assert ("openvino_bf16" in installed_engines("any")) is has
    assert "openvino_bf16" not in installed_engines()


def test_a_host_that_does_not_say_has_none(cpuinfo: Path) -> None:
    assert not has_bfloat16()
    has_bfloat16.cache_clear()
    cpuinfo.write_text("Features : bf16\n")  # as on ARM
    assert not has_bfloat16()


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelOnMachine]:
    folder = tmp_path_factory.mktemp("ready")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield make_ready(write_identity_model(folder), load_machine("this-machine"), precision="any")


@pytest.mark.parametrize("precision", ["exact", "any"])
@pytest.mark.parametrize("has", [True, False])
def test_plans_may_have_bfloat16_only_if_it_is_permitted_and_there(
    ready: ModelOnMachine, monkeypatch: pytest.MonkeyPatch, precision: str, has: bool
) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setattr(model_on_machine, "has_bfloat16", lambda: has)
    rules = replace(ready, precision=precision).rules
    assert ("openvino_bf16" in rules.engines) is (has and precision == "any")
    why = rules.engines_barred.get("openvino_bf16", "")
    assert ("precision" in why) is (precision == "exact")
    assert ("AMX" in why) is (precision == "any" and not has)


def test_an_emulated_clock_bars_every_other_engine(ready: ModelOnMachine) -> None:
    text = 'timing = "modelled"\n[[place]]\nname = "a"\ncore_count = 1\n'
    modelled = replace(ready, machine=parse_machine(text, name="m", source="m.toml"))
    assert modelled.rules.engines == ("onnxruntime",)
