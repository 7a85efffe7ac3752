"""Tables of results in the README and in pages of docs: `python -m benchmarks readme` writes them.

Figures are never copied by hand, so none is outdated when its file has been measured again; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from types import MappingProxyType
from typing import Final

from benchmarks.report.facts import ROOT
from benchmarks.report.headers import header
from benchmarks.report.results import RESULTS, read_csv
from benchmarks.report.statements import tally
from shisha_rt.errors import BadInput

BEGIN: Final = "<!-- python -m benchmarks readme -->"
BEGIN_RIVALS: Final = "<!-- python -m benchmarks readme: rivals -->"
BEGIN_RACE: Final = "<!-- python -m benchmarks readme: race -->"
BEGIN_BRANCHES: Final = "<!-- python -m benchmarks readme: branches -->"
BEGIN_ENERGY: Final = "<!-- python -m benchmarks readme: energy -->"
BEGIN_ALONE: Final = "<!-- python -m benchmarks readme: alone -->"
BEGIN_HOSTS: Final = "<!-- python -m benchmarks readme: hosts -->"
BEGIN_PAPERS: Final = "<!-- python -m benchmarks readme: papers -->"
END: Final = "<!-- /readme -->"

TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {
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
)
ENGINES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "openvino_throughput": "OpenVINO",
        "openvino_latency": "OpenVINO",
        "ort_threads": "ONNX Runtime, one session",
        "ort_copies": "ONNX Runtime, two sessions",
    }
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: `ratio` in a result's file, or its reciprocal, and the engine that it refers to."""

    title: str
    result: str
    ratio: str
    inverse: bool = False
    engine: str | None = None

    def cell(self, row: Mapping[str, str]) -> str:
        names = (self.ratio, f"{self.ratio}, lower quartile", f"{self.ratio}, upper quartile")
        figures = [float(row[name]) for name in names if row.get(name)]  # older files lack some or all quartiles
        middle, *ends = [1 / figure for figure in figures] if self.inverse else figures
        spread = f" ({min(ends):.2f} to {max(ends):.2f})" if ends else ""
        engine = f", {ENGINES.get(row[self.engine]) or RACERS[row[self.engine]]}" if self.engine else ""
        return f"{middle:.2f}{spread}{engine}"


COLUMNS: Final = (
    Column("frames from a client; the best engine", "against_engines", "best rival / daemon", engine="best rival"),
    Column("frames made inside; two sessions of ONNX Runtime", "copies", "rival / free"),
)


def engines_table(folder: Path) -> str:
    """Markdown: a row for each network, a column for each available result; below, how each was measured."""
    columns = [column for column in COLUMNS if (folder / f"{column.result}.csv").exists()]
    found = [{row["model"]: row for row in read_csv(folder / f"{column.result}.csv")} for column in columns]
    lines = [f"| | {' | '.join(column.title for column in columns)} |", f"|---|{'---|' * len(columns)}"]
    for model in dict.fromkeys(model for rows in found for model in rows):
        cells = [
            column.cell(rows[model]) if model in rows else "not measured"
            for column, rows in zip(columns, found, strict=True)
        ]
        lines.append(f"| {TITLES.get(model, model)} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"From {'; '.join(_made_by(folder, column.result) for column in columns)}."])


GAINS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "layers": "layers as they are",
        "onnxruntime": "every operator, ONNX Runtime",
        "openvino": "every operator, OpenVINO",
    }
)


def branches_table(folder: Path) -> str:
    """Markdown: for each network the most that branches can gain, and the measured gain, if available."""
    if not (folder / "branches.csv").exists():
        return "Not measured yet."
    gains = {(row["model"], row["layers"]): row["whole / critical"] for row in read_csv(folder / "branches.csv")}
    kept = (folder / "branches_alone.csv").exists()
    live = {row["model"]: row for row in (read_csv(folder / "branches_alone.csv") if kept else ())}
    columns = [
        Column("branches, live", "branches_alone", "branches / better", inverse=True),
        Column("the daemon's own plan, live", "branches_alone", "latency / better", inverse=True),
    ]
    lines = [
        f"| | {' | '.join([*GAINS.values(), *(column.title for column in columns)])} |",
        "|---|---|---|---|---|---|",
    ]
    for model in dict.fromkeys(model for model, _ in gains):
        can = [f"{float(gains[model, form]):.2f}" if (model, form) in gains else "not measured" for form in GAINS]
        did = [column.cell(live[model]) if live.get(model, {}).get(column.ratio) else "-" for column in columns]
        lines.append(f"| {TITLES.get(model, model)} | {' | '.join([*can, *did])} |")
    results = ["branches", "branches_alone"] if kept else ["branches"]
    return "\n".join([*lines, "", f"From {'; '.join(_made_by(folder, result) for result in results)}."])


RACERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "daemon_shared": "daemon, memory shared",
        "daemon_onnxruntime": "daemon, ONNX Runtime alone",
        "daemon_ipc": "daemon, ipc",
        "daemon_tcp": "daemon, TCP",
        "ort_copies": "ONNX Runtime, two sessions",
        "ort_threads": "ONNX Runtime, two threads",
        "openvino_throughput": "OpenVINO, throughput",
        "openvino_copies": "OpenVINO, two copies",
        "openvino_batches": "OpenVINO, two copies given four frames at once",
        "openvino_latency": "OpenVINO, two threads",
        "mosec": "Mosec",
        "litserve": "LitServe",
        "ray_serve": "Ray Serve",
        "mlserver": "MLServer",
    }
)


def race_table(folder: Path, result: str = "race") -> str:
    """Markdown: a row for each network, milliseconds per frame by side, and the daemon's rates over the best rivals.

    The fastest side is in bold.
    """
    if not (folder / f"{result}.csv").exists():
        return "Not measured yet."
    rows = read_csv(folder / f"{result}.csv")
    by_model: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        by_model.setdefault(row["model"], {})[row["side"]] = row
    sides = [side for side in RACERS if any(row["side"] == side for row in rows)]
    over = [
        Column("over the best plain engine", result, "best engine / it", engine="best engine"),
        Column("over the best server", result, "best server / it", engine="best server"),
    ]
    titles = [*(RACERS[side] for side in sides), *(column.title for column in over)]
    lines = [f"| ms a frame | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    for model, its in by_model.items():
        fastest = min(its, key=lambda side: float(its[side]["ms"]))
        marks = {side: "**" if side == fastest else "" for side in sides}
        times = [f"{marks[side]}{float(its[side]['ms']):.2f}{marks[side]}" if side in its else "-" for side in sides]
        daemon = next((its[side] for side in RACERS if side in its), {})
        rates = [column.cell(daemon) if daemon.get(column.ratio) else "-" for column in over]
        lines.append(f"| {TITLES.get(model, model)} | {' | '.join([*times, *rates])} |")
    about = header(folder / f"{result}.csv")
    return "\n".join([*lines, "", f"From {_made_by(folder, result)}, {about.get('cpu', 'an unknown host')}."])


def rivals_table(folder: Path) -> str:
    """Markdown: a row for each network, the daemon and the best of all engines and servers, the winner in bold.

    Below, the number of networks on which the daemon won, and the geometric mean of its rate over the best rival's.
    """
    if not (folder / "race.csv").exists():
        return "Not measured yet."
    by_model: dict[str, dict[str, dict[str, str]]] = {}
    for row in read_csv(folder / "race.csv"):
        by_model.setdefault(row["model"], {})[row["side"]] = row
    lines = ["| | shisha-rt | the best rival | rate over the best rival's |", "|---|---|---|---|"]
    rates, over_servers = [], []
    for model, rows in by_model.items():
        daemon = rows["daemon_shared"]
        if daemon["best server / it"]:
            over_servers.append(float(daemon["best server / it"]))
        rival = min((side for side in rows if not side.startswith("daemon")), key=lambda side: float(rows[side]["ms"]))
        kind = "engine" if daemon["best engine"] == rival else "server"
        mine_ms, best_ms = float(daemon["ms"]), float(rows[rival]["ms"])
        rates.append(float(daemon[f"best {kind} / it"]))
        mine, best = f"{mine_ms:.2f} ms", f"{best_ms:.2f} ms"
        mine, best = (f"**{mine}**", best) if mine_ms < best_ms else (mine, f"**{best}**")
        rate = Column("", "race", f"best {kind} / it").cell(daemon)
        lines.append(f"| {TITLES.get(model, model)} | {mine} | {best}, {RACERS[rival]} | {rate} |")
    won = sum(rate > 1 for rate in rates)
    mean = f"geometric mean of the rates: {geometric_mean(rates):.2f}"
    summary = f"Faster than every rival on {won} of {len(rates)} networks; {mean}"
    about = header(folder / "race.csv")
    host = f"{about.get('cpu', 'an unknown host')}, {about.get('cores', 'unknown')} cores"
    if over_servers:
        least, most = min(over_servers), max(over_servers)
        summary += f"; over the best server alone: {geometric_mean(over_servers):.2f} ({least:.2f} to {most:.2f})"
    medians = "Times and rates are medians over the rounds, of each by itself."
    return "\n".join([*lines, "", f"{summary}. {medians}", f"From {_made_by(folder, 'race')}, {host}."])


def alone_table(folder: Path) -> str:
    """Markdown: unloaded latency in milliseconds by network and pause, and daemons' over the better engine's."""
    if not (folder / "alone.csv").exists():
        return "Not measured yet."
    lines = [
        "| | pause | for latency | default | ONNX Runtime | OpenVINO | for latency over the better | default over it |",
        "|---|---|---|---|---|---|---|---|",
    ]
    over = [Column("", "alone", f"{side} / best engine") for side in ("latency", "auto")]
    for row in read_csv(folder / "alone.csv"):
        times = [f"{float(row[side]):.2f} ms" for side in ("latency", "auto", "ort_threads", "openvino_latency")]
        cells = [TITLES.get(row["model"], row["model"]), f"{row['pause ms']} ms", *times]
        lines.append(f"| {' | '.join([*cells, *(column.cell(row) for column in over)])} |")
    about = header(folder / "alone.csv")
    return "\n".join([*lines, "", f"From {_made_by(folder, 'alone')}, {about.get('cpu', 'an unknown host')}."])


def energy_table(folder: Path) -> str:
    """Markdown: millijoules per frame by network and objective of the plan, predicted and measured."""
    if not (folder / "energy.csv").exists():
        return "Not measured yet."
    lines = [
        "| | plan for | predicted | measured | over the plan for energy | by itself | frames/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in read_csv(folder / "energy.csv"):
        joules = [f"{float(row[name]):.1f} mJ" for name in ("predicted mJ", "measured mJ")]
        speed = f"{float(row['over energy']):.2f}", f"{float(row['alone ms']):.1f} ms", f"{float(row['frames/s']):.0f}"
        lines.append(f"| {' | '.join([TITLES.get(row['model'], row['model']), row['for'], *joules, *speed])} |")
    about = header(folder / "energy.csv")
    return "\n".join([*lines, "", f"From {_made_by(folder, 'energy')}, {about.get('cpu', 'an unknown host')}."])


HOST_SIDES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "daemon_shared": "daemon, its client",
        "daemon_http": "daemon, HTTP",
        "serve_handle": "Ray Serve, handle",
        "serve_http": "Ray Serve, HTTP",
    }
)


def hosts_table(folder: Path) -> str:
    """Markdown: frames per second over one to three hosts by side, and the daemon's rates over the like side's."""
    if not (folder / "cluster_serve.csv").exists():
        return "Not measured yet."
    by_case: dict[tuple[str, str, str], dict[str, dict[str, str]]] = {}
    for row in read_csv(folder / "cluster_serve.csv"):
        by_case.setdefault((row["network"], row["hosts"], row["memory"]), {})[row["side"]] = row
    titles = [*HOST_SIDES.values(), "over the handle", "over its HTTP"]
    lines = [f"| frames/s | hosts | {' | '.join(titles)} |", f"|---|---|{'---|' * len(titles)}"]
    over = Column("", "cluster_serve", "rate over it")
    for (network, hosts, memory), its in by_case.items():
        absent = "does not fit" if memory else "not measured"
        rates = [f"{float(its[side]['frames/s']):.1f}" if side in its else absent for side in HOST_SIDES]
        daemon = [its.get(side, {}) for side in ("daemon_shared", "daemon_http")]
        times = [over.cell(row) if row.get(over.ratio) else "-" for row in daemon]
        room = f", {memory}" if memory else ""
        lines.append(f"| {TITLES.get(network, network)}{room} | {hosts} | {' | '.join([*rates, *times])} |")
    return "\n".join([*lines, "", f"From {_made_by(folder, 'cluster_serve')}."])


PAPERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "shisha": "Shisha; simulated, as in the paper",
        "dcg": "DCG; on paper",
        "partitiontuner": "PartitionTuner; executed, emulated",
        "splits_paper": "GP; on paper",
    }
)


def papers_table(folder: Path) -> str:
    """Markdown: how many of each paper's statements repeat, from the pages of `PAPERS`."""
    lines = ["| paper | its page | repeat, in part, do not | |", "|---|---|---|---|"]
    for name, title in PAPERS.items():
        path = folder / f"{name}_statements.csv"
        if path.exists():
            counted, _, apart = str(tally(read_csv(path))).partition("; ")
            page = f"[{name}.md](benchmarks/results/{name}.md)"
            lines.append(f"| {title} | {page} | {counted} | {apart} |")
    return "\n".join(lines)


def _made_by(folder: Path, result: str) -> str:
    about = header(folder / f"{result}.csv")
    commits = dict.fromkeys(row["commit"] for row in read_csv(folder / f"{result}.csv") if row.get("commit"))
    if len(commits) > 1:
        about = {**about, "commit": " and ".join(commits)}
    return f"[{result}](benchmarks/results/{result}.csv), {about['date'].partition(' ')[0]}, commit {about['commit']}"


def with_table(page: str, table: str, mark: str = BEGIN) -> str:
    """The page with the table between `mark` and its end mark. Raises BadInput if the marks are missing."""
    before, begin, rest = page.partition(mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BadInput(f"no {mark} ... {END}, expected a table of results between them")
    return f"{before}{mark}\n{table}\n{END}{after}"


TABLES: Final[Mapping[str, Mapping[str, Callable[[Path], str]]]] = MappingProxyType(
    {
        "README.md": {BEGIN_RIVALS: rivals_table},
        "docs/performance.md": {
            BEGIN_RACE: race_table,
            BEGIN: engines_table,
            BEGIN_ALONE: alone_table,
            BEGIN_BRANCHES: branches_table,
        },
        "docs/plans.md": {BEGIN_ENERGY: energy_table},
        "docs/cluster.md": {BEGIN_HOSTS: hosts_table},
        "docs/research.md": {BEGIN_PAPERS: papers_table},
    }
)
"""The pages with tables of results, and the table between each pair of marks."""


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
