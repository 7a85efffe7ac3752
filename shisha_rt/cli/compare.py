"""`shisha-rt compare`: whether a daemon is faster than plain engines, for this model on this machine."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from shisha_rt.cli.options import Dims, Json, MachineFile, Model, Shapes, check_writable, parse_sizes, takes
from shisha_rt.cli.progress import progress
from shisha_rt.costs.profiles import DISTURBED
from shisha_rt.errors import BadInput, Error
from shisha_rt.extras import is_installed, pip_install
from shisha_rt.measure.installed import installed_engines

if TYPE_CHECKING:
    from shisha_rt.cli.drive.compared import MeasuredSide, MeasuredSides


_LONGEST_S: Final = 3600.0
"""Of one window, and of tuning. A much longer one, as 1e308, is a mistake that would never end."""
WATCHING: Final = "watching"
"""State of a tuner that has found its plan."""


@dataclass(frozen=True, slots=True)
class CompareOptions:
    model: Model
    machine: MachineFile = "this-machine"
    objective: Annotated[
        Literal["throughput", "latency", "auto"],
        typer.Option(metavar="throughput|latency|auto", help="What the daemon is tuned for."),
    ] = "auto"
    seconds: Annotated[float, typer.Option(metavar="S", help="Of one window of one side.")] = 1.0
    precision: Annotated[
        Literal["exact", "any"],
        typer.Option(
            metavar="exact|any",
            help="any: also in bfloat16 where the processor has it, which changes answers.",
        ),
    ] = "exact"
    rounds: Annotated[int, typer.Option(metavar="N", min=1, max=100, help="Turns of each side.")] = 3
    tune: Annotated[float, typer.Option(metavar="S", help="For which the daemon may be tuned, at most.")] = 120.0
    inputs: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="Frames to compute, a .npy or .npz file. Default: random."),
    ] = None
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a chart (takes the extra plot).")] = None
    dim: Dims = None
    shape: Shapes = None
    as_json: Json = False


@takes(CompareOptions)
def compare(options: CompareOptions) -> None:
    """Say how fast MODEL is in a daemon and on plain engines here.

    ONNX Runtime, OpenVINO where it is installed, and a daemon that has tuned itself take turns on the same cores:
    frames a second with as many frames as they take, and the latency of a frame by itself. The daemon's frames come
    from a client in another process; an engine's lie in its own memory. It takes a minute or two, longer for large
    networks. The machine should have nothing else to do. Files of --input are as for submit; an engine computes the
    first frame over and over.

    \b
    Examples:
      shisha-rt compare zoo:squeezenet
      shisha-rt compare model.onnx --dim batch=1 --rounds 5 --json
      shisha-rt compare zoo:text_detector --png compared.png
      shisha-rt compare speech.onnx --input one_frame.npz
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.cli.drive.compared import Comparison
    from shisha_rt.cli.drive.reach import plainly
    from shisha_rt.machine.config.machine_file import check_runnable, load_machine
    from shisha_rt.model.zoo import resolve_model

    for option, value in (("--seconds", options.seconds), ("--tune", options.tune)):
        if not 0 < value <= _LONGEST_S:
            raise BadInput(f"{option} {value:g}: expected seconds, above 0 and at most {_LONGEST_S:g}")
    check_writable("--png", options.png)
    if options.png is not None and not is_installed("matplotlib"):
        raise BadInput(f"--png: matplotlib is missing: {pip_install('plot')}", Error.EXTRA_MISSING)
    parse_sizes(options.dim, options.shape)  # what is wrong with them is said before anything is started
    machine = load_machine(options.machine)
    check_runnable(machine)
    path = resolve_model(options.model, progress)
    comparison = Comparison(options, machine, path)
    with plainly(sends_random=options.inputs is None):
        unasked = options.precision == "exact" and "openvino_bf16" in installed_engines("any")
        compared = Compared(options.model, tuple(comparison.cores), comparison.measure(progress), unasked)
    print(json.dumps(compared.as_object()) if options.as_json else compared.in_words())
    if options.png is not None:
        from shisha_rt.show.figure import asked_for_by_png, save_comparison

        with asked_for_by_png():
            save_comparison(options.png, options.model, compared.bars())


@dataclass(frozen=True, slots=True)
class Compared:
    """Results of one model on all sides. `has_faster`: OpenVINO has bfloat16 here, which was not wanted."""

    model: str
    cores: tuple[int, ...]
    measured: MeasuredSides
    has_faster: bool = False

    def as_object(self) -> dict[str, object]:
        """The object that `--json` prints; it always has all keys."""
        rival = self._rival() if self.measured.sides[0].rates_fps else None
        return {
            "model": self.model,
            "cores": list(self.cores),
            "sides": [
                {**asdict(side), "rate_fps": _median(side.rates_fps), "latency_s": _median(side.latencies_s)}
                for side in self.measured.sides
            ],
            "fastest": max(self._measured, key=_rate).name if self._measured else None,
            "best_engine": None if rival is None else rival.name,
            "rate_over_best_engine": None if rival is None else self._over(rival),
            "others_ratio": self.measured.others_ratio,
            "leased_by_others": list(self.measured.leased),
        }

    def in_words(self) -> str:
        """A table, fastest side first, why its figures may be wrong, and the conclusions from them."""
        measured = sorted(self._measured, key=_rate, reverse=True)
        width = max(len(side.name) for side in self.measured.sides)
        lines = [f"{self.model} on {len(self.cores)} core{'s' * (len(self.cores) != 1)}, medians of rounds (and range)"]
        lines.append(f"{'':{width}}  {'frames/s':>24}  {'one frame by itself':>24}")
        for side in measured:
            rate = f"{_short(_rate(side))} ({_range(side.rates_fps)})"
            latencies_ms = [1e3 * latency_s for latency_s in side.latencies_s]
            latency = f"{_short(statistics.median(latencies_ms))} ms ({_range(latencies_ms)})"
            lines.append(f"{side.name:{width}}  {rate:>24}  {latency:>24}")
        lines += [f"{side.name:{width}}  left out: {side.reason}" for side in self.measured.sides if side.reason]
        return "\n".join([*lines, "", *self._doubt(), *self._verdict(), *self._in_bfloat16()])

    def _in_bfloat16(self) -> Iterator[str]:
        if self.has_faster:
            yield "OpenVINO can compute in bfloat16 here, which changes answers: --precision any compares that"

    def _doubt(self) -> Iterator[str]:
        if self.measured.leased:
            cores = ", ".join(map(str, self.measured.leased))
            yield f"another daemon has cores {cores}: end it, and compare again"
        if (ratio := self.measured.others_ratio) > DISTURBED:
            yield f"other programs had {ratio:.0%} of the cores meanwhile: compare again when the machine is quiet"

    def bars(self) -> list[tuple[str, float, float]]:
        """Name, frames a second and latency in seconds of what was measured."""
        return [(side.name, _rate(side), statistics.median(side.latencies_s)) for side in self._measured]

    def _verdict(self) -> list[str]:
        daemon, rival = self.measured.sides[0], self._rival()
        if not daemon.rates_fps:
            return ["the daemon could not be measured"]
        plan = f"the daemon's plan: {daemon.plan}"
        if daemon.latency_plan not in (None, daemon.plan):
            plan += f"; for latency: {daemon.latency_plan}"
        if daemon.tuner != WATCHING:
            plan += f" (its tuner was still {daemon.tuner}: --tune gives it longer)"
        if rival is None:
            return [f"{daemon.name}: no engine to compare it with", plan]
        ratio, quickest = self._over(rival), min(self._measured, key=lambda side: statistics.median(side.latencies_s))
        spread = f"{ratio['least']:.2f} to {ratio['most']:.2f}"
        known = f"{ratio['median']:.2f} times (median of the rounds' ratios, {spread})"
        if ratio["least"] > 1:
            rates = f"{daemon.name} is the fastest: {known} the frames a second of {rival.name}"
        elif ratio["most"] < 1:
            rates = f"{rival.name} is the fastest: {daemon.name} has {known} its frames a second"
        else:
            rates = f"{daemon.name} and {rival.name} are alike within the noise: {known} its frames a second"
        return [rates, f"least latency of one frame: {quickest.name}", plan]

    @property
    def _measured(self) -> list[MeasuredSide]:
        return [side for side in self.measured.sides if side.rates_fps]

    def _rival(self) -> MeasuredSide | None:
        """The fastest engine."""
        return max((side for side in self._measured if side is not self.measured.sides[0]), key=_rate, default=None)

    def _over(self, rival: MeasuredSide) -> dict[str, float]:
        """The daemon's rate over the rival's, round by round."""
        ratios = [own / other for own, other in zip(self.measured.sides[0].rates_fps, rival.rates_fps, strict=True)]
        return {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}


def _rate(side: MeasuredSide) -> float:
    return statistics.median(side.rates_fps)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _range(values: Sequence[float]) -> str:
    return f"{_short(min(values))} to {_short(max(values))}"


def _short(value: float) -> str:
    """Three digits, or all digits before the decimal point; no exponent."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"
