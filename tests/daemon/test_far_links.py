"""Links are planned by anew once they have settled, and not too often."""

from __future__ import annotations

import pytest

from shisha_rt.costs.link_speed import LinkSpeed, OneWay
from shisha_rt.costs.links import HostLink
from shisha_rt.daemon.fleet.far_places import FarLinks

FIRST = HostLink("a", OneWay(1e-3, 1e8), OneWay(2e-3, 2e8))
SETTLED_S = 1.5
APART_S = 5.0


def seen(latency_s: float, rate: float = 1e8) -> LinkSpeed:
    return LinkSpeed(OneWay(latency_s, rate), OneWay(2 * latency_s, 2 * rate))


def link(host: str, latency_s: float, rate: float = 1e8) -> HostLink:
    return HostLink(host, OneWay(latency_s, rate), OneWay(2 * latency_s, 2 * rate))


@pytest.fixture
def links() -> FarLinks:
    return FarLinks({"far1": FIRST})


def test_nothing_is_new_before_anything_is_seen(links: FarLinks) -> None:
    assert links.planned_by == {"far1": FIRST}
    assert links.seen == {}
    assert list(links.take_new()) == []
    assert links.changed(1e9) is None


def test_what_is_seen_is_taken_once_and_kept(links: FarLinks) -> None:
    links.note("far1", "a", seen(3e-3), 10)
    links.note("far2", "b", seen(4e-3), 10)
    links.note("far1", "a", seen(5e-3), 10)
    assert dict(links.take_new()) == {"far1": seen(5e-3), "far2": seen(4e-3)}
    assert list(links.take_new()) == []
    assert links.seen == {"far1": seen(5e-3), "far2": seen(4e-3)}


def test_links_are_told_of_once_they_have_settled(links: FarLinks) -> None:
    links.note("far1", "a", seen(3e-3), 10)
    assert links.changed(10 + 0.99 * SETTLED_S) is None
    assert links.planned_by == {"far1": FIRST}
    assert links.changed(10 + SETTLED_S) == {"far1": link("a", 3e-3)}
    assert links.planned_by == {"far1": link("a", 3e-3)}
    assert links.changed(1e9) is None, "they count as told"


def test_what_is_seen_meanwhile_waits_for_it_to_settle_and_goes_with_it(links: FarLinks) -> None:
    links.note("far1", "a", seen(3e-3), 10)
    links.note("far2", "b", seen(4e-3, 1e7), 11)
    assert links.changed(10 + SETTLED_S) is None
    assert links.changed(11 + SETTLED_S) == {"far1": link("a", 3e-3), "far2": link("b", 4e-3, 1e7)}


def test_a_place_that_is_not_seen_keeps_its_link() -> None:
    links = FarLinks({"far1": FIRST, "far2": FIRST})
    links.note("far2", "c", seen(3e-3), 0)
    assert links.changed(SETTLED_S) == {"far1": FIRST, "far2": link("c", 3e-3)}


def test_a_place_that_comes_back_elsewhere_has_its_new_hosts_link(links: FarLinks) -> None:
    links.note("far1", "b", seen(3e-3), 0)
    changed = links.changed(SETTLED_S)
    assert changed is not None
    assert changed["far1"].host == "b"


def test_changes_are_told_of_apart(links: FarLinks) -> None:
    links.note("far1", "a", seen(3e-3), 0)
    assert links.changed(10) is not None
    links.note("far1", "a", seen(9e-3), 11)
    assert links.changed(11 + SETTLED_S) is None
    assert links.changed(10 + 0.99 * APART_S) is None
    assert links.changed(10 + APART_S) == {"far1": link("a", 9e-3)}


def test_after_long_only_settling_counts(links: FarLinks) -> None:
    links.note("far1", "a", seen(3e-3), 0)
    assert links.changed(10) is not None
    links.note("far1", "a", seen(9e-3), 100)
    assert links.changed(100 + SETTLED_S) == {"far1": link("a", 9e-3)}


def test_what_is_told_does_not_change_under_who_has_it(links: FarLinks) -> None:
    links.note("far1", "a", seen(3e-3), 0)
    changed = links.changed(10)
    links.note("far1", "a", seen(9e-3), 11)
    assert changed == links.planned_by == {"far1": link("a", 3e-3)}


def test_a_link_that_is_much_the_same_is_no_news(links: FarLinks) -> None:
    """As when a relay begins again; it is what status shows."""
    assert not links.note("far1", "a", seen(1.2e-3), 10)
    assert links.changed(1e9) is None
    assert links.seen == {"far1": seen(1.2e-3)}
    assert links.note("far1", "a", seen(9e-3), 10)
    assert not links.note("far1", "a", seen(8e-3), 11)
    assert links.note("far1", "b", seen(8e-3), 12), "it is another host"
