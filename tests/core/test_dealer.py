"""Places dealt among models: by hand, and through thousands of random interleavings with its promises after each."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Iterable

import pytest

from shisha_rt.core import dealer as de
from tests.drawn import chunks

LOOK_S = 0.25


class Machine:
    """A world in virtual time: daemons that do as they are told, when they get to it, and loads that change."""

    def __init__(self, places: int, rng: random.Random | None = None, *, broken: type[de.Dealer] = de.Dealer) -> None:
        self.rng = rng
        self.dealer = broken([f"p{number}" for number in range(places)])
        self.now_s = 0.0
        self.loads: dict[str, float] = {}
        self.has: dict[str, set[str]] = {}
        self.orders: deque[de.Take | de.Release] = deque()
        self.moves: list[tuple[float, str, str]] = []

    def feed(self, event: de.DealerEvent | de.PlacesAllowed) -> None:
        for instruction in self.dealer.handle(event, self.now_s):
            match instruction:
                case de.BeginModel(model, places):
                    self.has[model] = {*places}
                case de.Take(model, place):
                    self._check_take(model, place)
                    self.moves.append((self.now_s, place, model))
                    self.orders.append(instruction)
                case de.Release(model, place):
                    left = self.has[model] - {place, *(order.place for order in self._releasing(model))}
                    assert left, f"{model} would be left without a place"
                    works = not left <= self.dealer.models[model].lost
                    assert works or place in self.dealer.models[model].lost, f"{model} has no worker on {left}"
                    self.orders.append(instruction)
        self._check()

    def _releasing(self, model: str) -> Iterable[de.Release]:
        return [order for order in self.orders if isinstance(order, de.Release) and order.model == model]

    def _check_take(self, model: str, place: str) -> None:
        assert place not in self.has[model], f"{model} has {place} already"
        holders = [name for name, places in self.has.items() if place in places and name != model]
        working = [name for name, dealt in self.dealer.models.items() if dealt.wanted]
        if len(working) <= len(self.dealer.places):
            keeping = [name for name in (model, *holders) if name in working and not self.dealer.models[name].light]
            target = de.deal(self.dealer.places, self.dealer.models.values())  # one may still have what it is to leave
            alone = [name for name in keeping if len(target[name]) > 2]
            assert len(keeping) <= 1 + (not alone), f"{model} takes {place}, which {holders} work on"

    def _check(self) -> None:
        assert all(self.has.values()), f"a model has no place: {self.has}"
        assert self.has.keys() == self.dealer.models.keys()

    def come(self, model: str, load: float = 0.0, terms: de.Terms | None = None) -> None:
        self.loads[model] = load
        self.feed(de.ModelCame(model, terms or de.Terms()))

    def leave(self, model: str) -> None:
        del self.loads[model], self.has[model]
        self.orders = deque(order for order in self.orders if order.model != model)
        self.feed(de.ModelLeft(model))

    def obey(self) -> None:
        """The first order is carried out, or, now and then, is not."""
        order = self.orders.popleft()
        if self.rng is not None and self.rng.random() < 0.05:
            self.feed(de.NotMoved(order.model, order.place))
        elif isinstance(order, de.Take):
            self.has[order.model].add(order.place)
            self.feed(de.PlaceTaken(order.model, order.place))
        else:
            self.has[order.model].discard(order.place)
            self.feed(de.PlaceGivenBack(order.model, order.place))

    def allow(self, *places: str) -> None:
        self.feed(de.PlacesAllowed(places))

    def give_up(self, model: str, place: str) -> None:
        """Its worker there died again and again; the last one is never given up."""
        works = self.has[model] - self.dealer.models[model].lost - {order.place for order in self._releasing(model)}
        if place in works and len(works) > 1:
            self.feed(de.PlaceAbandoned(model, place))

    def room(self, model: str) -> float:
        """The places that it can keep busy beside those who share them."""
        at = Counter(place for name, places in self.has.items() if self.loads[name] for place in places)
        return sum(1 / max(1, at[place]) for place in self.has[model])

    def look(self) -> None:
        """What each keeps busy: as much as comes, within what its places give it beside those who share them."""
        self.now_s += LOOK_S
        at = Counter(place for model, places in self.has.items() if self.loads[model] for place in places)
        for model, places in list(self.has.items()):
            room = self.room(model)
            slower = sum(at[place] for place in places) / len(places) if self.loads[model] else 1
            busy = min(self.loads[model] * slower, len(places))
            waiting = 4 + 2 * len(places) if self.loads[model] > room else int(busy > 0)
            self.feed(de.LoadSeen(model, busy, waiting))

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds / LOOK_S)):
            self.look()
            while self.orders:
                self.obey()


def test_a_model_alone_gets_every_place_that_it_keeps_busy_and_gives_them_to_one_that_comes() -> None:
    machine = Machine(2)
    machine.come("a", load=9.0)
    machine.come("b")
    assert machine.has == {"a": {"p0"}, "b": {"p1"}}
    machine.run(3)
    assert machine.has == {"a": {"p0", "p1"}, "b": {"p1"}}, "b has no frames: its place is lent"
    assert machine.dealer.shared == {"p1": ["a", "b"]}
    machine.loads["b"] = 0.8
    machine.run(5)
    assert machine.has == {"a": {"p0", "p1"}, "b": {"p0", "p1"}}, "half of two is more than a single one now and then"
    before = len(machine.moves)
    machine.loads = {"a": 0.6, "b": 0.6}
    machine.run(20)
    assert len(machine.moves) == before, "it is in nobody's way"


def test_two_that_have_too_little_with_a_single_place_have_both_together() -> None:
    machine = Machine(3)
    machine.come("a", load=9.0, terms=de.Terms(share=2))
    machine.come("b", load=9.0)
    machine.run(10)
    assert machine.has == {"a": {"p0", "p2"}, "b": {"p1"}}
    machine.come("c", load=9.0)
    machine.run(20)
    assert sorted(map(len, machine.has.values())) == [1, 2, 2]
    assert list(map(len, machine.dealer.shared.values())) == [2, 2]


def test_a_light_model_lends_its_place_and_has_what_it_needs_when_that_is_more() -> None:
    machine = Machine(3)
    machine.come("a", load=9.0)
    machine.come("b", load=0.3)
    machine.come("c", load=0.9, terms=de.Terms(least=1))
    machine.run(10)
    assert machine.has == {"a": {"p0", "p1"}, "b": {"p1"}, "c": {"p2"}}
    machine.loads["b"] = 0.4
    machine.run(60)
    assert machine.dealer.shared == {"p1": ["a", "b"]}, "at most half of it: that it has"
    machine.loads["b"] = 0.9
    machine.run(8)
    assert machine.room("b") == 1
    machine.loads = {"a": 0.1, "b": 0.1, "c": 9.0}
    machine.run(60)
    assert machine.has["c"] == {"p0", "p1", "p2"}


def test_where_loads_change_sides_places_need_not() -> None:
    machine = Machine(2)
    machine.come("a", load=1.4)
    machine.come("b", load=0.3)
    for _ in range(6):
        machine.run(10)
        machine.loads = {"a": machine.loads["b"], "b": machine.loads["a"]}
    assert machine.has == {"a": {"p0", "p1"}, "b": {"p0", "p1"}}
    assert len(machine.moves) == 2


def test_a_model_that_refuses_frames_needs_more_whatever_it_keeps_busy() -> None:
    machine = Machine(2)
    machine.come("a")
    machine.come("b")
    for look in range(12):
        machine.feed(de.LoadSeen("a", 0.6, 1, refused=look % 2))
        machine.feed(de.LoadSeen("b", 0.0, 0))
        machine.now_s += LOOK_S
    assert machine.moves == [(machine.moves[0][0], "p1", "a")]


def test_places_are_dealt_by_shares_where_all_want_more() -> None:
    machine = Machine(8)
    machine.come("a", load=9.0, terms=de.Terms(share=3))
    machine.come("b", load=9.0)
    machine.run(30)
    assert {model: len(places) for model, places in machine.has.items()} == {"a": 6, "b": 2}
    assert not machine.dealer.shared


def test_least_and_most_are_kept() -> None:
    machine = Machine(4)
    machine.come("a", load=9.0, terms=de.Terms(most=2))
    machine.come("b", terms=de.Terms(least=2))
    machine.come("c", load=9.0)
    machine.run(30)
    assert {model: len(places) for model, places in machine.has.items()} == {"a": 2, "b": 2, "c": 2}
    assert list(machine.dealer.shared.values()) == [["a", "c"]] * 2
    machine.leave("b")
    machine.run(30)
    assert {model: len(places) for model, places in machine.has.items()} == {"a": 2, "c": 2}


def test_more_models_than_places_share_and_a_hot_one_has_all_while_others_are_idle() -> None:
    machine = Machine(2)
    for number in range(12):
        machine.come(f"m{number}")
    assert sorted(Counter(place for places in machine.has.values() for place in places).values()) == [6, 6]
    machine.loads["m3"] = 9.0
    machine.run(4)
    assert machine.has["m3"] == {"p0", "p1"}
    for name in machine.loads:
        machine.loads[name] = 0.1
    machine.run(60)
    assert all(len(places) == 1 for places in machine.has.values())
    assert sorted(Counter(place for places in machine.has.values() for place in places).values()) == [6, 6]


def test_a_load_that_swings_faster_than_places_can_follow_moves_them_less_and_less() -> None:
    machine = Machine(2)
    machine.come("a")
    machine.come("b")
    for swing in range(170):  # ten minutes
        machine.loads = {"a": 9.0, "b": 0.0 if swing % 2 else 9.0}
        machine.run(3.5)
    by_place = Counter(place for at_s, place, _ in machine.moves if at_s > 60)
    assert 2 < max(by_place.values()) <= 9 * 60 / de.RESTS_S[1]


def test_a_model_is_told_of_the_places_on_which_others_compute() -> None:
    machine = Machine(2)
    machine.come("a")
    machine.come("b")
    machine.loads = {"a": 9.0, "b": 0.2}
    machine.run(20)
    assert (machine.has["a"], machine.has["b"]) == ({"p0", "p1"}, {"p1"})
    assert (machine.dealer.crowded("a"), machine.dealer.crowded("b")) == (("p1",), ("p1",))
    machine.loads["b"] = 0.0
    machine.run(20)
    assert machine.dealer.crowded("a") == ()


def test_who_takes_over_goes_on_with_what_is_there() -> None:
    machine = Machine(2)
    machine.has = {"a": {"p0", "p1"}, "b": {"p1"}}
    machine.loads = {"a": 9.0, "b": 0.0}
    dealer = machine.dealer
    for model, places in machine.has.items():
        assert dealer.handle(de.ModelFound(model, de.Terms(), tuple(sorted(places))), 0.0) == []
    machine.run(3)
    assert not machine.moves


def test_a_place_that_a_daemon_has_given_up_is_dealt_to_others_alone() -> None:
    machine = Machine(2)
    machine.come("a", load=9.0)
    machine.run(3)
    assert machine.has == {"a": {"p0", "p1"}}
    machine.give_up("a", "p0")
    machine.run(20)
    assert machine.has == {"a": {"p1"}}
    machine.come("b", load=9.0)
    machine.run(20)
    assert machine.has == {"a": {"p1"}, "b": {"p0"}}
    machine.leave("b")
    machine.feed(de.DaemonBegan("a"))
    machine.run(20)
    assert machine.has == {"a": {"p0", "p1"}}, "another daemon may have it"


def test_a_place_that_is_brought_up_again_counts() -> None:
    machine = Machine(2)
    machine.come("a", load=9.0)
    machine.run(3)
    machine.give_up("a", "p0")
    machine.run(20)
    machine.has["a"].add("p0")
    machine.feed(de.PlaceTaken("a", "p0"))
    machine.run(20)
    assert machine.has == {"a": {"p0", "p1"}}


def test_models_leave_places_that_are_not_allowed_any_more_and_come_back() -> None:
    machine = Machine(3)
    machine.come("a", load=9.0)
    machine.come("b")
    machine.come("c", load=0.2)
    machine.run(5)
    machine.allow("p1")
    machine.run(1)
    assert machine.has == {"a": {"p1"}, "b": {"p1"}, "c": {"p1"}}, "at once"
    machine.allow("p1", "p0", "p3")
    machine.loads["b"] = 9.0
    machine.run(30)
    assert {"p0", "p1", "p3"} == {*machine.has["a"], *machine.has["b"]}


@pytest.mark.parametrize("seeds", chunks(100, 10, short=6))
def test_random_worlds(seeds: range) -> None:
    """The promises hold after every event; and when loads stay, places come to rest, dealt as they should be."""
    for seed in seeds:
        random_world(seed)


def random_world(seed: int) -> None:
    rng = random.Random(seed)
    machine = Machine(rng.randint(1, 6), rng)
    every, loses = machine.dealer.places, rng.random() < 0.3
    names = (f"m{number}" for number in range(1000))
    machine.come(next(names))
    for _ in range(rng.randint(20, 200)):
        act = rng.random()
        if act < 0.05 and len(machine.has) < 9:
            least, most = rng.choice((0, 0, 0, 1)), rng.choice((None, None, rng.randint(1, 3)))
            machine.come(next(names), terms=de.Terms(rng.choice((1, 1, 2, 5)), least, most))
        elif act < 0.08 and len(machine.has) > 1:
            machine.leave(rng.choice(sorted(machine.has)))
        elif act < 0.2:
            machine.loads[rng.choice(sorted(machine.loads))] = rng.choice((0.0, 0.1, 0.4, 0.9, 1.5, 9.0))
        elif act < 0.22:
            machine.allow(*rng.sample(every, rng.randint(1, len(every))))
        elif act < 0.25 and loses:
            machine.give_up(rng.choice(sorted(machine.has)), rng.choice(every))
        elif act < 0.27 and loses:
            machine.feed(de.DaemonBegan(rng.choice(sorted(machine.has))))
        elif act < 0.5 and machine.orders:
            machine.obey()
        else:
            machine.look()
    machine.rng = None
    machine.run(200)
    before = len(machine.moves)
    machine.run(60)
    assert len(machine.moves) == before, "places do not come to rest while loads stay"
    for model, dealt in machine.dealer.models.items():
        assert machine.has[model] <= {*dealt.usable(machine.dealer.places)}, f"{model} has what is of no use to it"
    terms = {model: dealt.terms for model, dealt in machine.dealer.models.items()}
    over = [model for model, places in machine.has.items() if len(places) > (terms[model].most or math.inf)]
    assert not over, f"{over} have more than they may: {machine.has}"
    working = [model for model, load in machine.loads.items() if load or terms[model].least]
    if any(dealt.lost for dealt in machine.dealer.models.values()):
        return  # what is best where not every place is for everyone is not said here
    if len(working) <= len(machine.dealer.places):
        light = {model for model in working if machine.dealer.models[model].light}
        keeping = sorted(set(working) - light)
        taken = Counter(place for model in keeping for place in machine.has[model])
        part = {model: sum(1 / taken[place] for place in machine.has[model]) for model in keeping}
        assert min(part.values(), default=1) >= 1, f"{part} of places: {machine.has}, {machine.loads}"
        assert max(taken.values(), default=0) <= 2, f"too many share a place: {machine.has}, {machine.loads}"
    else:
        assert all(len(machine.has[model]) == 1 for model in working)
    hungry = [model for model in working if machine.loads[model] > len(machine.has[model])]
    hungry = [model for model in hungry if terms[model].most is None]
    if hungry and len(working) <= len(machine.dealer.places):
        unused = set(machine.dealer.places) - {place for model in working for place in machine.has[model]}
        assert not unused, f"{hungry} want more, {unused} are not used: {machine.has}, {machine.loads}"
        own = {model for model in working if terms[model].least}
        at = Counter(place for model in working for place in machine.has[model])
        assert all(min(at[place] for place in machine.has[model]) == 1 for model in own), f"no own: {machine.has}"
        half_used = {place for model in light - own for place in machine.has[model]}
        assert all(machine.loads[model] <= machine.room(model) for model in light), "it has what it needs"
        idle = half_used - {*taken}
        assert not idle, f"{hungry} want more, {idle} are half idle: {machine.has}, {machine.loads}"
