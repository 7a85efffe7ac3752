"""The page in a real browser, before a real daemon."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks.rigs.steady_load import SteadyLoad
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.protocol.access import Permission, User
from tests.cli.statuses import FORK, FORK_S, branches, status_of
from tests.http.page.browser import NEEDS_CHROMIUM, a_page, chromium
from tests.http.page.told import Told, page_of
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import LAYERS, write_identity_model
from tests.waiting import until

pytestmark = [pytest.mark.long, NEEDS_CHROMIUM]

LAST: Final = LAYERS - 1
PLACES: Final = ("fast0", "slow0")
SPLIT: Final = Plan.of([(0, 3, "fast0"), (4, LAST, "slow0")])
COPIES: Final = Plan.chain([(0, LAST, [["fast0"], ["slow0"]])])
NASTY: Final = "<img src=x onerror=document.title='owned'>"
TUNED: Final = ("--strategy", "shisha")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def serve(
    folder: Path, *options: object, http: str = "127.0.0.1:0", name: str = "identity", **more: Any
) -> DaemonProcess:
    model = write_identity_model(folder, name=name)
    machine = machine_file(folder, PLACES)
    return DaemonProcess(folder, model, "--machine", machine, "--fresh", "--http", http, *options, **more)


def works(page: Page) -> list[str]:
    return page.locator(".stage .work").all_text_contents()


def no_wider_than_the_window(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_it_draws_what_the_daemon_says_and_follows_it(tmp_path: Path, browser: Browser) -> None:
    with serve(tmp_path) as daemon, SteadyLoad(daemon.endpoint, 4), a_page(browser) as page:
        assert daemon.control.set_plan(SPLIT)["outcome"] == "live"
        page.goto(daemon.http[0])
        expect(page.locator("#link")).to_have_text("live")
        expect(page.locator("#model")).to_have_text("identity")
        expect(page.locator(".stage")).to_have_count(2)
        assert works(page) == ["Layers 0-3", f"Layers 4-{LAST}"]
        assert page.locator(".stage .team").all_text_contents() == ["●fast0", "●slow0"]
        expect(page.locator(".stage .tag:visible")).to_have_text("slowest")
        until(lambda: daemon.control.status()["bottleneck_stage"] is not None, "times of all stages")

        def is_marked_right() -> bool:
            slowest = daemon.control.status()["bottleneck_stage"]
            return "slowest" in (page.locator(".stage").nth(slowest).get_attribute("class") or "")

        until(is_marked_right, "the daemon's slowest stage is the page's", every_s=0.3)
        expect(page.locator(".tile .value").first).to_have_text(re.compile(r"^[1-9][\d,.]*/s$"))
        expect(page.locator("path.answered").first).to_be_attached()

        page.evaluate("window.loadedOnce = true")
        answer = daemon.control.set_plan(COPIES)
        assert answer["outcome"] == "live"
        expect(page.locator("#plan")).to_contain_text(f"epoch {answer['epoch']} · 1 stage on 2 places")
        assert works(page) == [f"Layers 0-{LAST}"]
        expect(page.locator(".stage")).to_contain_text("2 copies")
        changed = page.locator("#journal li", has_text=f"epoch {answer['epoch']} is live")
        expect(changed).to_have_count(1)
        assert page.evaluate("window.loadedOnce")

        changed.focus()
        expect(page.locator(".mark.lit")).to_have_count(1)

        def points_at_the_mark() -> bool:
            middle = "(it) => (({x, y, width, height}) => [x + width / 2, y + height / 2])(it.getBoundingClientRect())"
            page.mouse.move(*page.locator(".mark.lit").evaluate(middle))
            return f"epoch {answer['epoch']} is live" in (page.locator(".tip").text_content() or "")

        until(points_at_the_mark, "the mark tells its reason", every_s=0.2)


def test_a_place_that_is_lost_and_one_that_is_taken_down(tmp_path: Path, browser: Browser) -> None:
    with serve(tmp_path) as daemon, a_page(browser) as page:
        daemon.control.set_plan(SPLIT)
        page.goto(daemon.http[0])
        place = page.locator(".place", has_text="slow0")
        expect(place).to_have_attribute("data-state", "up")
        daemon.kill_worker(daemon.wait_for_workers()["slow0"])
        expect(page.locator("#journal")).to_contain_text("the worker on slow0 is gone: killed by signal 9")
        expect(place).to_contain_text("killed by signal 9")
        expect(place).to_contain_text("1 restart")
        daemon.wait_for_workers()
        place.locator("summary").click()
        place.get_by_role("button", name="take down").click()
        expect(place).to_contain_text("down, not in planning")
        expect(place).to_have_attribute("data-state", "unwanted")
        expect(page.locator("#pipeline")).to_contain_text("Without a stage: slow0 (down, not in planning)")
        assert not daemon.control.status()["places"][1]["available"]
        page.locator(".place", has_text="fast0").locator("summary").click()
        page.locator(".place", has_text="fast0").get_by_role("button", name="take down").click()
        expect(page.locator(".place", has_text="fast0").locator(".said")).to_contain_text("is the last one left")
        place.get_by_role("button", name="bring up").click()
        expect(place).to_have_attribute("data-state", "up")


def test_the_tuner_is_steered(tmp_path: Path, browser: Browser) -> None:
    with serve(tmp_path, *TUNED) as daemon, SteadyLoad(daemon.endpoint, 4), a_page(browser) as page:
        page.goto(daemon.http[0])
        expect(page.locator(".trial").first).to_be_attached()
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#tuner-state")).to_have_text("paused")
        until(lambda: daemon.control.status()["tuner"]["state"] == "paused", "a pause")
        expect(page.get_by_role("button", name="Pause")).to_be_disabled()
        page.locator("#alpha").fill("7")
        page.locator("#alpha").press("Enter")
        page.locator("#objective").select_option("latency")
        page.get_by_role("button", name="Resume").click()
        until(lambda: daemon.control.status()["tuner"]["alpha"] == 7, "another alpha")
        until(lambda: daemon.control.status()["tuner"]["objective"] == "latency", "another objective")
        until(lambda: daemon.control.status()["tuner"]["state"] != "paused", "it goes on")
        page.locator("#strategy").select_option("guided")
        expect(page.locator("#control .said")).to_contain_text("'guided' needs measured costs")
        trial = page.locator("#journal li", has_text="trial 0 of run 1").first
        expect(trial).to_contain_text("first")


def test_another_sites_page_cannot_steer(tmp_path: Path, browser: Browser) -> None:
    script = """async (url) => {
        const order = {method: "POST", credentials: "include", body: '{"op":"tuner_set","pause":true}'};
        const json = {headers: {"Content-Type": "application/json"}};
        const ask = (more) => fetch(url, {...order, ...more}).then((answer) => answer.type, () => "refused");
        return [await ask(json), await ask({mode: "no-cors"}), await ask({mode: "no-cors", ...json})];
    }"""
    with serve(tmp_path, *TUNED) as daemon, SteadyLoad(daemon.endpoint, 4), a_page(browser) as page:
        page.goto(daemon.http[0])  # so that there is a cookie
        statuses: list[int] = []
        page.context.on("response", lambda answer: statuses.append(answer.status))
        for site in ("http://evil.example/", daemon.http[0].replace("127.0.0.1", "localhost") + "/evil"):
            page.route(site, lambda route: route.fulfill(body="<title>evil</title>", content_type="text/html"))
            page.goto(site)
            assert page.title() == "evil"
            statuses.clear()
            assert page.evaluate(script, daemon.http[0] + "/page/control")[0] == "refused"
            assert not [status for status in statuses if status < 400]
        assert daemon.control.status()["tuner"]["state"] != "paused"
        page.goto(daemon.http[0])
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#tuner-state")).to_have_text("paused")


def test_it_comes_back_with_the_daemon(tmp_path: Path, browser: Browser) -> None:
    with a_page(browser) as page:
        with serve(tmp_path, *TUNED) as daemon:
            page.goto(daemon.http[0])
            expect(page.locator("#link")).to_have_text("live")
            stages = works(page)
            daemon.popen.kill()
            daemon.popen.wait()
            expect(page.locator("#link")).to_have_text("connection lost, trying again")
            expect(page.locator("#alarm")).to_contain_text("What is shown is the last that was said")
            expect(page.locator("body")).to_have_class("old")
            assert works(page) == stages
        with serve(tmp_path, *TUNED, http=daemon.http[0].removeprefix("http://"), endpoint=daemon.endpoint) as second:
            expect(page.locator("#link")).to_have_text("live")
            expect(page.locator("#alarm")).to_be_hidden()
            expect(page.locator("#foot")).to_contain_text(f"process {second.pid}")
            page.get_by_role("button", name="Pause").click()  # by a session of the new process
            expect(page.locator("#tuner-state")).to_have_text("paused")


def test_names_stay_text(tmp_path: Path, browser: Browser) -> None:
    with serve(tmp_path, name=NASTY) as daemon, a_page(browser) as page:
        page.goto(daemon.http[0])
        expect(page.locator("#model")).to_have_text(NASTY)
        assert page.title() == f"{NASTY} · shisha-rt"
        assert page.locator("img").count() == 0


def tuner(**more: object) -> dict[str, Any]:
    """What a daemon says of its tuner before it knows anything."""
    unknown = ("utilisation", "trying", "best_throughput_fps", "best_latency_s", "best_plan", "lower_bound_s")
    return {
        "state": "waiting", "strategy": "guided", "alpha": 10, "balance": "nlfep", "objective": "auto",
        "serves": "throughput", "plans": {"throughput": None, "latency": None}, "run": 0, "trials": 0,
        "trials_total": 0, "moves_total": 0, **dict.fromkeys(unknown), **more,
    }  # fmt: skip


def odd_status(plan: Plan, service_s: list[float | None], slowest: int | None) -> dict[str, Any]:
    status = status_of(plan, service_s, slowest) | {"tuner": tuner()}
    status["machine"] |= {"timing": "measured", "time_scale": 1.0, "memories": []}
    for place in status["places"]:
        place |= {"memory": "ram", "devices": [], "emulated": True}
    return status


def starting() -> dict[str, Any]:
    nothing = {"throughput_fps": None, "bottleneck_s": None, "bottleneck_stage": None, "latency_s": None}
    status = odd_status(FORK, list(FORK_S), None) | nothing | {"state": "starting", "fault": "no plan fits"}
    status["plan"] = {"epoch": None, "stages": []}
    for place in status["places"]:
        place |= {"state": "starting", "pid": None}
    return status


def untimed() -> dict[str, Any]:
    status = odd_status(FORK, [None] * 4, None)
    return status | {"throughput_fps": None, "bottleneck_s": None, "bottleneck_stage": None, "latency_s": None}


def named(long: str) -> dict[str, Any]:
    """The longest names, of everything that has one."""
    stages = tuple(Stage(((i, i),), ((f"{i}{long}"[:256],),), (i - 1,) if i else ()) for i in range(4))
    status = odd_status(Plan(stages), [0.001] * 4, 2)
    status["model"]["name"] = status["machine"]["name"] = long
    status["tuner"] |= {"trying": long, "best_plan": long, "best_throughput_fps": 9.0, "best_latency_s": 0.1, "run": 1}
    for place in status["places"]:
        device = {"name": long, "emulated": True, "exact": False, "speed": 0.5}
        place |= {"memory": long, "last_error": long, "state": "restarting", "devices": [device]}
    return status


ODD: Final = {
    "starting": starting(),
    "untimed": untimed(),
    "200 stages on 64 places": odd_status(
        Plan(tuple(Stage(((i, i),), ((f"p{i % 64}",),), (i - 1,) if i else ()) for i in range(200))), [0.001] * 200, 7
    ),
    "40 branches": odd_status(branches(40), [0.001] * 42, 3),
    "long names": named("W" * 256),
    "names with markup": named(NASTY * 5),
}


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ODD)
def test_whatever_a_daemon_may_say(browser: Browser, name: str, width: int) -> None:
    status = ODD[name]
    daemon = Told(status)
    daemon.happened(300)
    with page_of(daemon) as url, a_page(browser, width=width) as page:
        page.goto(url)
        expect(page.locator("#model")).to_have_text(status["model"]["name"])
        expect(page.locator(".stage")).to_have_count(len(status["plan"]["stages"]))
        expect(page.locator(".place")).to_have_count(len(status["places"]))
        expect(page.locator("#journal li").first).to_contain_text("<b>299</b> is up")
        no_wider_than_the_window(page)
        assert page.locator("img, #journal b").count() == 0
        assert page.title() == f"{status['model']['name']} · shisha-rt"


def test_with_an_allow_list_its_reader_logs_in(browser: Browser) -> None:
    users = tuple(
        User(name, permission, token_sha256=hashlib.sha256(f"{name}'s".encode()).hexdigest())
        for name, permission in (("ann", Permission.OPERATOR), ("bob", Permission.CLIENT))
    )
    with page_of(Told(ODD["untimed"]), users) as url, a_page(browser) as page:
        page.goto(url)
        expect(page.locator("#login")).to_be_visible()
        expect(page.locator("#picture")).to_be_hidden()
        page.locator("#token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("#login .said")).to_have_text("the token is nobody's")
        page.locator("#token").fill("bob's")
        page.locator("#token").press("Enter")
        expect(page.locator(".stage")).to_have_count(4)
        expect(page.locator("#control")).to_contain_text("This user may look, but not steer")
        expect(page.get_by_role("button", name="Pause")).to_be_disabled()
        page.get_by_role("button", name="Log out bob").click()
        page.locator("#token").fill("ann's")
        page.locator("#token").press("Enter")
        expect(page.get_by_role("button", name="Pause")).to_be_enabled()


def test_the_list_is_walked_by_keys(browser: Browser) -> None:
    daemon = Told(ODD["untimed"])
    daemon.happened(5)
    with page_of(daemon) as url, a_page(browser) as page:
        page.goto(url)
        expect(page.locator("#journal li")).to_have_count(5)
        expect(page.locator("#journal li[tabindex='0']")).to_have_count(1)
        page.locator("#journal li").first.focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator("#journal li").nth(1)).to_be_focused()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowUp")
        expect(page.locator("#journal li").first).to_be_focused()


def test_on_a_phone(tmp_path: Path, browser: Browser) -> None:
    with serve(tmp_path, *TUNED) as daemon, SteadyLoad(daemon.endpoint, 4), a_page(browser, width=360) as page:
        page.goto(daemon.http[0])
        expect(page.locator("#journal li").first).to_contain_text("trial")
        no_wider_than_the_window(page)
        heights = "[...document.querySelectorAll('button, select, input')].map((one) => one.offsetHeight)"
        assert all(height == 0 or height >= 32 for height in page.evaluate(heights))


def test_whoever_has_sent_nothing_is_told_how(tmp_path: Path, browser: Browser) -> None:
    with serve(tmp_path) as daemon, a_page(browser, width=360) as page:
        page.goto(daemon.http[0])
        expect(page.locator(".terminal code")).to_have_text(
            f"shisha-rt submit --endpoint {daemon.endpoint} --frames 1000"
        )
        no_wider_than_the_window(page)
        with SteadyLoad(daemon.endpoint, 4):
            expect(page.locator(".terminal").first).to_contain_text("frames in")
