"""The page's scripts by themselves, in Node with the little of a browser that they need."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from shisha_rt.core.event_log import AnyRecord
from shisha_rt.core.tuning.state import WAITING, State
from shisha_rt.http.page.files import FOLDER
from tests.waiting import PATIENCE_S

NODE: Final = shutil.which("node")
STAND_IN: Final = Path(__file__).parent / "stand_in.mjs"
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node")


def result_of(folder: Path, script: str) -> Any:
    """What `script` returns, in JSON. It may import the page's files, and has what `stand_in.mjs` exports as `page`."""
    assert NODE is not None
    for path in (*FOLDER.glob("*.js"), STAND_IN):
        shutil.copy(path, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    whole = f'import * as page from "./stand_in.mjs";\nconst result = await (async () => {{{script}}})();\n'
    (folder / "script.mjs").write_text(f"{whole}process.stdout.write(JSON.stringify(result));\n")
    done = subprocess.run([NODE, "script.mjs"], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_journal_of_another_daemon_replaces_the_old_ones(tmp_path: Path) -> None:
    script = """
        const { Journal } = await import("./journal.js");
        const journal = new Journal(() => {});
        const event = (number, words) => ({ event: number, kind: "place_up", time_s: 1e9, words });
        journal.add(true, [event(0, "old 0"), event(1, "old 1")]);
        journal.add(true, [event(0, "new 0"), event(1, "new 1")]);
        return page.byId.journal.children.map((item) => item.children[2].textContent);
    """
    assert result_of(tmp_path, script) == ["new 1", "new 0"]


def test_only_what_the_daemon_has_answered_makes_the_page_live(tmp_path: Path) -> None:
    script = """
        const { Feed } = await import("./feed.js");
        const states = [];
        new Feed(() => {}, (state) => states.push(state)).open();
        const gap = [1, null, null, null, null];
        const told = [
          ["trouble", { reason: "" }], ["history", { new: false, samples: [[0, 9, 1, 1, 1], gap] }],
          ["history", { new: true, samples: [] }], ["journal", { new: true, events: [] }],
          ["history", { new: false, samples: [gap, [2, 0, null, null, null]] }],
          ["trouble", { reason: "" }], ["status", {}],
        ];
        return told.map(([name, data]) => { page.tell(name, data); return states.at(-1); });
    """
    assert result_of(tmp_path, script) == [*["silent"] * 4, "live", "silent", "live"]


def test_a_model_that_is_not_served_is_no_daemon_that_is_gone(tmp_path: Path) -> None:
    """One that is unloaded, or that a later host process does not know."""
    script = """
        location.search = "?model=a";
        const { Feed } = await import("./feed.js");
        const states = [], served = ["a", "b"];
        globalThis.fetch = async () => ({ ok: true, json: async () => ({ may_watch: true, models: served }) });
        new Feed(() => {}, (state) => states.push(state)).open();
        page.tell("status", {});
        page.tell("trouble", { reason: "", kind: "model_gone" });
        page.sources.at(-1).onerror();
        await page.settle();
        served.shift();
        page.sources.at(-1).onerror();
        await page.settle();
        return states;
    """
    assert result_of(tmp_path, script) == ["live", "unserved", "gone", "unserved"]


def test_a_network_that_says_nothing_is_told_of_at_once_and_waited_for_no_longer_than_agreed(tmp_path: Path) -> None:
    script = """
        const { Feed, order } = await import("./feed.js");
        const states = [], asked = [];
        globalThis.fetch = (path, { signal }) => {
          asked.push([path, signal instanceof AbortSignal]);
          return new Promise(() => {});
        };
        new Feed(() => {}, (state) => states.push(state)).open();
        page.tell("status", {});
        for (const call of page.timers.values()) call();
        order("/page/control", {});
        return [states, asked];
    """
    states, asked = result_of(tmp_path, script)
    assert states == ["live", "gone"]
    assert asked == [["/page/caller", True], ["/page/control", True]]


def test_one_error_is_in_the_singular(tmp_path: Path) -> None:
    script = """
        const { Figures } = await import("./figures.js");
        const figures = new Figures(), tuner = { objective: "auto", utilisation: null };
        return [0, 1, 1200].map((bad) => {
          const frames = { answered: { OK: 3, CANCELLED: bad }, in_flight: 0, replayed: 0 };
          figures.show({ frames, tuner, plan: { stages: [] }, throughput_fps: null, objective: "latency" }, null);
          return figures.tiles.frames.note.textContent;
        });
    """
    assert result_of(tmp_path, script) == ["0 errors", "1 error", "1,200 errors"]


def test_what_the_daemon_refused_is_shown_no_longer(tmp_path: Path) -> None:
    script = """
        const { Control } = await import("./control.js");
        const { Places } = await import("./places.js");
        const refuse = async () => {};
        const control = new Control(refuse), places = new Places(refuse);
        const tuner = { state: "watching", strategy: "guided", objective: "auto", alpha: 10 };
        const device = { name: "d", speed: 0.5, exact: true };
        const place = { name: "p", available: true, state: "up", speed: 0.25,
          cores: [0], threads: 1, devices: [device] };
        const status = { tuner, places: [place], machine: {}, plan: { stages: [] } };
        const show = () => { control.show(status, true, null); places.show(status, true); };
        show();
        const card = places.cards.get("p");
        const select = control.objective.select;
        const forms = [card.speed, card.devices[0].speed];
        document.activeElement = select;
        select.value = "latency";
        await select.calls.change();
        const alphas = control.element.children[1].children[2];
        control.alpha.value = "99";
        alphas.calls.submit({ preventDefault() {} });
        for (const form of forms) {
          form.input.value = "7";
          form.element.calls.submit({ preventDefault() {} });
        }
        await page.settle();
        show();
        return [select.value, control.alpha.value, ...forms.map((form) => form.input.value)];
    """
    assert result_of(tmp_path, script) == ["auto", "10", "0.25", "0.5"]


def test_each_state_of_the_tuner_has_a_sentence_and_a_comparison_its_progress(tmp_path: Path) -> None:
    states = [WAITING, *(state.value for state in State)]
    script = """
        const { Tuner } = await import("./tuner.js");
        const tuner = new Tuner();
        const said = (more) => {
          const rest = { strategy: "guided", objective: "auto", trials_total: 0, moves_total: 0, trying: null };
          tuner.show({ tuner: { ...rest, ...more } });
          return page.byId.tuner.children[0].textContent;
        };
        const comparing = { objective: "latency", tried: 2, candidates: 5, ahead: "shards" };
        return [STATES.map((state) => said({ state, comparing: null })), said({ state: "comparing", comparing })];
    """.replace("STATES", json.dumps(states))
    sentences, progress = result_of(tmp_path, script)
    assert [state for state, said in zip(states, sentences, strict=True) if not said] == []
    assert all(word in progress for word in ("latency", "2 of 5", "shards"))


def test_each_kind_of_event_passes_a_filter_and_deaths_are_marked_as_bad(tmp_path: Path) -> None:
    kinds = sorted(str(record.__struct_config__.tag) for record in get_args(AnyRecord))
    script = """
        const { FILTERS, passes, tone } = await import("./events.js");
        const filters = Object.keys(FILTERS).filter((name) => !["main", "all"].includes(name));
        const events = KINDS.map((kind) => ({ kind }));
        const named = (chosen) => chosen.map((event) => event.kind);
        return [
          named(events.filter((event) => !filters.some((filter) => passes(filter, event)))),
          named(events.filter((event) => tone(event) === "bad")),
          named(events.filter((event) => tone({ ...event, dismissed: true }) === "bad")),
        ];
    """.replace("KINDS", json.dumps(kinds))
    unknown, bad, bad_all_the_same = result_of(tmp_path, script)
    assert unknown == []
    assert {kind for kind in kinds if kind.endswith(("_died", "_lost", "_failed", "_gone"))} <= set(bad)
    assert bad_all_the_same == []


def test_a_place_that_is_not_wanted_has_not_failed_whatever_its_worker_died_of_before(tmp_path: Path) -> None:
    script = """
        const { stateMark } = await import("./pipeline.js");
        const place = { available: false, state: "out", last_error: "killed by signal 9" };
        return [false, true].map((given_up) => stateMark({ ...place, given_up }));
    """
    assert result_of(tmp_path, script) == ["–", "✕"]


def test_nothing_is_drawn_beyond_the_charts_when_the_host_s_time_was_set_back(tmp_path: Path) -> None:
    script = """
        globalThis.ResizeObserver = class { observe() {} };
        const { Charts } = await import("./charts.js");
        const charts = new Charts(() => {});
        charts.svg.parentElement = { clientWidth: 900 };
        charts.addSamples({ new: true, samples: [5000, 5001, 1400, 1401].map((time_s) => [time_s, 9, 0.1, 0.1, 0.1]) });
        return charts.svg.children.map((part) => part.d).filter(Boolean);
    """
    paths = result_of(tmp_path, script)
    assert paths
    assert max(float(at) for path in paths for at in re.findall(r"[ML]([0-9.-]+)", path)) <= 900
