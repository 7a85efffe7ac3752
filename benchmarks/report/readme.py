"""Tables of results in the README and in pages of docs: `python -m benchmarks readme` writes them.

Figures are never copied by hand, so none is outdated when its file has been measured again; a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Final

from benchmarks.report.facts import ROOT
from benchmarks.report.headers import header
from benchmarks.report.page import tally
from benchmarks.report.results import RESULTS, read_csv
from benchmarks.rigs.servers import SERVERS
from shisha_rt.errors import BadInput

BEGIN: Final = "<!-- python -m benchmarks readme: {} -->"
END: Final = "<!-- /readme -->"

TITLES: Final[Mapping[str, str]] = {
    "squeezenet": "SqueezeNet",
    "shufflenet": "ShuffleNet",
    "inception_v1": "Inception v1",
    "densenet121": "DenseNet-121",
    "resnet50": "ResNet-50",
    "alexnet": "AlexNet",
    "text_classifier": "text classifier",
    "text_detector": "text detector",
    "text_recogniser": "text recogniser",
}
RACERS: Final[Mapping[str, str]] = {
    "daemon_shared": "daemon, memory shared",
    "daemon_onnxruntime": "daemon, ONNX Runtime alone",
    "daemon_ipc": "daemon, ipc",
    "daemon_tcp": "daemon, TCP",
    "ort_copies": "ONNX Runtime, two sessions",
    "ort_threads": "ONNX Runtime, two threads",
    "openvino_throughput": "OpenVINO, throughput",
    "openvino_copies": "OpenVINO, two copies",
    "openvino_batches": "OpenVINO, two copies given four frames at once",
    "ort_copies_huge": "ONNX Runtime, two sessions, huge pages",
    "openvino_copies_huge": "OpenVINO, two copies, huge pages",
    "openvino_batches_huge": "OpenVINO, two copies given four frames at once, huge pages",
    "openvino_latency": "OpenVINO, two threads",
    "mosec": "Mosec",
    "litserve": "LitServe",
    "ray_serve": "Ray Serve",
    "mlserver": "MLServer",
    "mosec_batches": "Mosec, batches",
    "litserve_batches": "LitServe, batches",
    "ray_serve_batches": "Ray Serve, batches",
    "mlserver_batches": "MLServer, batches",
}
GAINS: Final[Mapping[str, str]] = {
    "layers": "layers as they are",
    "onnxruntime": "every operator, ONNX Runtime",
    "openvino": "every operator, OpenVINO",
}
HOST_SIDES: Final[Mapping[str, str]] = {
    "daemon_shared": "daemon, its client",
    "daemon_http": "daemon, HTTP",
    "serve_handle": "Ray Serve, handle",
    "serve_http": "Ray Serve, HTTP",
}
PAPERS: Final[Mapping[str, str]] = {
    "shisha": "Shisha; simulated, as in the paper",
    "dcg": "DCG; on paper",
    "partitiontuner": "PartitionTuner; executed, emulated",
    "splits_paper": "GP; on paper",
}

DRIFT_WAYS: Final[Mapping[str, str]] = {"static": "static", "restart": "from the seed"}

Cells = Mapping[str, str]
"""A row of a file of results."""


def race_table(folder: Path, name: str = "race") -> str:
    """Markdown: a row for each network, milliseconds per frame of the daemon and of the best rival of each kind.

    Then the daemon's rates over the best engine and server, and its rate over HTTP over that server. The fastest is in
    bold.
    """
    rows = []
    for model, by_side in _grouped(folder / f"{name}.csv", "model", "side").items():
        kinds = (
            [side for side in ("daemon_shared",) if side in by_side],
            [side for side in by_side if side.startswith(("ort_", "openvino_")) and not _is_batched(side)],
            [side for side in by_side if side.startswith("openvino_") and _is_batched(side)],
            [side for side in by_side if side.removesuffix("_batches") in SERVERS],
        )
        best = [min(sides, key=lambda side: float(by_side[side]["ms"]), default=None) for sides in kinds]
        times = [math.inf if side is None else float(by_side[side]["ms"]) for side in best]
        cells = []
        for side, ms in zip(best, times, strict=True):
            mark = "**" if ms == min(times) else ""
            named = "" if side is None or side == "daemon_shared" or side in kinds[2] else f", {RACERS[side]}"
            cells.append("-" if side is None else f"{mark}{ms:.2f}{mark}{named}")
        over = [_ratio(by_side.get("daemon_shared", {}), f"best {kind} / it") for kind in ("engine", "server")]
        rows.append([_title(model), *cells, *over, _ratio(by_side.get("daemon_http", {}), "best server / it")])
    titles = ["ms a frame", "daemon", "best engine, single frames", "OpenVINO, four frames at once", "best server"]
    titles += ["over the best engine", "over the best server", "over it by HTTP"]
    return _table(titles, rows, _from(folder, name) + ".")


def _is_batched(side: str) -> bool:
    return "_batches" in side


def rivals_table(folder: Path) -> str:
    """Markdown: a row for each network, the daemon and the best of all engines and servers, the winner in bold.

    Below, the number of networks on which the daemon won, and the geometric mean of its rate over the best rival's.
    """
    rows, rates, over_servers = [], [], []
    for model, by_side in _grouped(folder / "race.csv", "model", "side").items():
        daemon = by_side["daemon_shared"]
        if daemon["best server / it"]:
            over_servers.append(float(daemon["best server / it"]))
        rival = min(
            (side for side in by_side if not side.startswith("daemon")), key=lambda side: float(by_side[side]["ms"])
        )
        kind = "engine" if daemon["best engine"] == rival else "server"
        mine_ms, best_ms = float(daemon["ms"]), float(by_side[rival]["ms"])
        rates.append(float(daemon[f"best {kind} / it"]))
        mine, best = f"{mine_ms:.2f} ms", f"{best_ms:.2f} ms"
        mine, best = (f"**{mine}**", best) if mine_ms < best_ms else (mine, f"**{best}**")
        rows.append([_title(model), mine, f"{best}, {RACERS[rival]}", _ratio(daemon, f"best {kind} / it")])
    mean = f"geometric mean of the rates: {geometric_mean(rates):.2f}"
    summary = f"Faster than every rival on {sum(rate > 1 for rate in rates)} of {len(rates)} networks; {mean}"
    if over_servers:
        least, most = min(over_servers), max(over_servers)
        summary += f"; over the best server alone: {geometric_mean(over_servers):.2f} ({least:.2f} to {most:.2f})"
    cores = header(folder / "race.csv").get("cores", "unknown")
    return _table(
        ["", "shisha-rt", "the best rival", "rate over the best rival's"],
        rows,
        f"{summary}. Times and rates are medians over the rounds, so a rate need not be the quotient of two times.\n"
        f"{_from(folder, 'race')}, {cores} cores.",
    )


def alone_table(folder: Path) -> str:
    """Markdown: unloaded latency in milliseconds by network and pause, and daemons' over the better engine's."""
    rows = [
        [
            *(_title(row["model"]), f"{row['pause ms']} ms"),
            *(f"{float(row[side]):.2f} ms" for side in ("latency", "auto", "ort_threads", "openvino_latency")),
            *(_ratio(row, f"{side} / best engine") for side in ("latency", "auto")),
        ]
        for row in read_csv(folder / "alone.csv")
    ]
    titles = ["", "pause", "for latency", "default", "ONNX Runtime", "OpenVINO"]
    titles += ["for latency over the better", "default over it"]
    return _table(titles, rows, _from(folder, "alone") + ".")


def branches_table(folder: Path) -> str:
    """Markdown: for each network the most that branches can gain, and what they gained."""
    gains = _grouped(folder / "branches.csv", "model", "layers")
    live = {row["model"]: row for row in read_csv(folder / "branches_alone.csv")}
    rows = []
    for model, by_form in gains.items():
        can = [
            f"{float(by_form[form]['whole / critical']):.2f}" if form in by_form else "not measured" for form in GAINS
        ]
        did = (_ratio(live[model], f"{side} / better", inverse=True) for side in ("branches", "latency"))
        rows.append([_title(model), *can, *did])
    titles = ["", *GAINS.values(), "branches, live", "the daemon's own plan, live"]
    return _table(titles, rows, f"From {_made_by(folder, 'branches')}; {_made_by(folder, 'branches_alone')}.")


def energy_table(folder: Path) -> str:
    """Markdown: millijoules per frame by network and objective of the plan, predicted and measured."""
    rows = [
        [
            *(_title(row["model"]), row["for"]),
            *(f"{float(row[name]):.1f} mJ" for name in ("predicted mJ", "measured mJ")),
            *(f"{float(row['over energy']):.2f}", f"{float(row['alone ms']):.1f} ms", f"{float(row['frames/s']):.0f}"),
        ]
        for row in read_csv(folder / "energy.csv")
    ]
    titles = ["", "plan for", "predicted", "measured", "over the plan for energy", "by itself", "frames/s"]
    return _table(titles, rows, _from(folder, "energy") + ".")


def hosts_table(folder: Path) -> str:
    """Markdown: frames per second over one to three hosts by side, and the daemon's rates over the like side's."""
    by_case: dict[tuple[str, str, str], dict[str, Cells]] = {}
    for row in read_csv(folder / "cluster_serve.csv"):
        by_case.setdefault((row["network"], row["hosts"], row["memory"]), {})[row["side"]] = row
    rows = []
    for (network, hosts, memory), by_side in by_case.items():
        absent = "does not fit" if memory else "not measured"
        rates = [f"{float(by_side[side]['frames/s']):.1f}" if side in by_side else absent for side in HOST_SIDES]
        over = (_ratio(by_side.get(side, {}), "rate over it") for side in ("daemon_shared", "daemon_http"))
        rows.append([_title(network) + (f", {memory}" if memory else ""), hosts, *rates, *over])
    titles = ["frames/s", "hosts", *HOST_SIDES.values(), "over the handle", "over its HTTP"]
    return _table(titles, rows, f"From {_made_by(folder, 'cluster_serve')}.")


def papers_table(folder: Path) -> str:
    """Markdown: how many of each paper's statements repeat."""
    rows = []
    for name, title in PAPERS.items():
        counted, _, apart = str(tally(read_csv(folder / f"{name}_statements.csv"))).partition("; ")
        rows.append([title, f"[{name}.md](benchmarks/results/{name}.md)", counted, apart])
    return _table(["paper", "its page", "repeat, in part, do not", ""], rows)


def drift_table(folder: Path) -> str:
    """Markdown: a row for each disturbance, frames lost by way, the least in bold; then what else was counted."""
    by_case: dict[str, dict[str, Cells]] = {}
    for row in read_csv(folder / "drift.csv"):
        machine = row["machine"].removesuffix(" (simulated)")
        by_case.setdefault(f"{machine}, {_title(row['network'])}: {row['disturbance']}", {})[row["way"]] = row
    ways = [way for way in next(iter(by_case.values())) if way != "oracle"]
    lost_rows, other_rows = [], []
    for case, by_way in by_case.items():
        lost = [f"{float(by_way[way]['lost %']):.1f}" for way in ways]
        least = min(lost, key=float)
        lost_rows.append(
            [case, *(f"**{text}**" if text == least and lost.count(least) == 1 else text for text in lost)]
        )
        other_rows.append([case, *(_of_drift(by_way[way]) for way in ways)])
    titles = [DRIFT_WAYS.get(way, f"`{way}`") for way in ways]
    between = (
        "Searches; trials; seconds until within 5% of the best plan under the disturbance, and in how many of the\n"
        "draws; p99 of the time between answers in ms. Means of the draws, but of seconds and p99 their medians:"
    )
    others = _table(["", *titles], other_rows, f"From {_made_by(folder, 'drift')}; simulated.")
    return "\n\n".join([_table(["frames lost, %", *titles], lost_rows), between, others])


def _of_drift(row: Cells) -> str:
    """`-`: fewer than half of the draws came within 5%."""
    searches, trials, p99_ms = (float(row[name]) for name in ("searches", "trials", "p99 between answers, ms"))
    within = f"{float(row['within 5% after s']):.0f} s" if row["within 5% after s"] else "-"
    reached = f" ({row['within 5%, runs']} of {row['runs']})" if row["within 5%, runs"] != "0" else ""
    return f"{searches:.1f}; {trials:.0f}; {within}{reached}; {p99_ms:.0f}"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], below: str = "") -> str:
    head = "|".join(["", *(f" {title} " if title else " " for title in titles), ""])
    lines = [head, f"|{'---|' * len(titles)}", *(f"| {' | '.join(cells)} |" for cells in rows)]
    return "\n".join([*lines, "", below] if below else lines)


def _grouped(path: Path, outer: str, inner: str) -> dict[str, dict[str, Cells]]:
    """Rows of a file by two columns."""
    grouped: dict[str, dict[str, Cells]] = {}
    for row in read_csv(path):
        grouped.setdefault(row[outer], {})[row[inner]] = row
    return grouped


def _ratio(row: Cells, name: str, *, named: str = "", inverse: bool = False) -> str:
    """A ratio with its quartiles, or its reciprocal, and the side in column `named`, to which it refers; - if there is
    none.
    """
    if not row.get(name):
        return "-"
    figures = [float(row[column]) for column in (name, f"{name}, lower quartile", f"{name}, upper quartile")]
    middle, *ends = [1 / figure for figure in figures] if inverse else figures
    return f"{middle:.2f} ({min(ends):.2f} to {max(ends):.2f})" + (f", {RACERS[row[named]]}" if named else "")


def _title(model: str) -> str:
    return TITLES.get(model, model)


def _from(folder: Path, result: str) -> str:
    """By which file, and on which processor."""
    return f"From {_made_by(folder, result)}, {header(folder / f'{result}.csv').get('cpu', 'an unknown host')}"


def _made_by(folder: Path, result: str) -> str:
    about, rows = header(folder / f"{result}.csv"), read_csv(folder / f"{result}.csv")
    commits = dict.fromkeys(row["commit"] for row in rows if row.get("commit")) or [about["commit"]]
    date = about["date"].partition(" ")[0]
    return f"[{result}](benchmarks/results/{result}.csv), {date}, commit {' and '.join(commits)}"


TABLES: Final[Mapping[str, Mapping[str, Callable[[Path], str]]]] = {
    "README.md": {"rivals": rivals_table},
    "docs/performance.md": {
        "race": race_table,
        "race_avx2": partial(race_table, name="race_avx2"),
        "alone": alone_table,
        "branches": branches_table,
    },
    "docs/plans.md": {"energy": energy_table},
    "docs/cluster.md": {"hosts": hosts_table},
    "docs/research.md": {"papers": papers_table, "drift": drift_table},
}
"""The pages with tables of results, and the table between each pair of marks."""


def with_table(page: str, table: str, name: str) -> str:
    """The page with the table between its marks. Raises BadInput if the marks are missing."""
    mark = BEGIN.format(name)
    before, begin, rest = page.partition(mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BadInput(f"no {mark} ... {END}, expected a table of results between them")
    return f"{before}{mark}\n{table}\n{END}{after}"


def with_results(name: str, folder: Path) -> str:
    """A page of `TABLES` with up-to-date tables. Raises BadInput as `with_table` does."""
    page = (ROOT / name).read_text(encoding="utf-8")
    up = "../" * name.count("/")
    for mark, table in TABLES[name].items():
        page = with_table(page, table(folder).replace("](benchmarks/", f"]({up}benchmarks/"), mark)
    return page


def readme() -> None:
    """Write the results that are kept into the tables of the README and of the pages of docs."""
    for name in TABLES:
        (ROOT / name).write_text(with_results(name, RESULTS), encoding="utf-8")
