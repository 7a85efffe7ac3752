"""Which model of a machine has which places: the dealer. Events in, instructions out; no side effects.

Each model's load is the number of places that it keeps busy. A model that keeps more than about half a place busy has
places of its own, as many as it keeps busy; if there are too few, they are dealt by shares. Two models that would have
one place each, when that is too little for either, share both: half of two is worth more than one, as their frames
seldom come at the same time. A model with less load is light: its place is lent to a model that has too few. It keeps
its further places, as it is in nobody's way there; so when loads swap, places need not move. A model without frames
keeps one warm worker. If more models have frames than there are places, they share places evenly. A place is given to
a model only after those that must give it up have released it; no model ever gives up its last one.

A place that a model's daemon has given up, as its worker died again and again, is dealt to other models alone. When the
host allows other places than before, models leave those that are not allowed any more.

A place that has moved stays for a while, longer each time if it moves back and forth. A change in what a model needs
counts only after several looks in a row, more of them for fewer places than for more.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

from msgspec import Struct

FILLED: Final = 0.85
"""A model that keeps more than this fraction of its places busy needs another place."""
IDLE_PLACES: Final = 0.005
"""A model that keeps less than this fraction of a place busy, and has no frame in flight, needs no place."""
LIGHT: Final = 0.45
"""A model becomes light if it keeps at most this fraction of a place busy: less than the half that sharing leaves."""
HAS_TOO_LITTLE: Final = 0.9
"""A light model that shares places is light no more if it keeps more than this fraction of them busy, which includes
delays by others' frames. On places of its own `FILLED` is the limit."""
LOOKS_TO_GROW: Final = 2
LOOKS_TO_SHRINK: Final = 8
LOOKS_AFTER_REFUSAL: Final = 4
"""A model that refused a frame counts as filling its places for so long: a target makes it refuse earlier."""
LOOKS_TO_BE_ALONE: Final = 12
"""More than `LOOKS_TO_SHRINK`: by then the model that shares its places may have become light instead."""
RESTS_S: Final = 2.0, 16.0


@dataclass(frozen=True, slots=True)
class Terms:
    """By what a model is dealt places. `share`: its weight among models that want more places. `least`: places that it
    has to itself, even without frames; `most`: the most that it gets.
    """

    share: float = 1.0
    least: int = 0
    most: int | None = None


class PlacesAllowed(Struct, frozen=True):
    """The places that may be dealt from now on, the best first; at least one."""

    places: tuple[str, ...]


class DealerEvent(Struct, frozen=True):
    model: str


class ModelCame(DealerEvent, frozen=True):
    terms: Terms = Terms()


class ModelFound(DealerEvent, frozen=True):
    """A model that has these places already: a host process takes over from one that died."""

    terms: Terms
    places: tuple[str, ...]


class ModelLeft(DealerEvent, frozen=True):
    pass


class LoadSeen(DealerEvent, frozen=True):
    """A model's load since the last look. `busy_places`: places that it kept busy on average. `in_flight`: frames that
    wait or are computed now. `refused`: frames that it refused because it had too much to do.
    """

    busy_places: float
    in_flight: int
    refused: int = 0


class PlaceTaken(DealerEvent, frozen=True):
    """The model's daemon has the place."""

    place: str


class PlaceGivenBack(DealerEvent, frozen=True):
    """No thread of the model's daemon is on the place any more."""

    place: str


class NotMoved(DealerEvent, frozen=True):
    """The daemon has not carried out a `Take` or `Release`: all is as before."""

    place: str


class PlaceAbandoned(DealerEvent, frozen=True):
    """The model's daemon has no worker on the place, and starts none; a `PlaceTaken` says if that has changed."""

    place: str


class DaemonBegan(DealerEvent, frozen=True):
    """The model has another daemon, which has given up no place."""


class DealerInstruction(Struct, frozen=True):
    model: str


class BeginModel(DealerInstruction, frozen=True):
    """Start the model's daemon on these places."""

    places: tuple[str, ...]


class Take(DealerInstruction, frozen=True):
    place: str


class Release(DealerInstruction, frozen=True):
    place: str


@dataclass(slots=True, eq=False)
class DealtModel:
    """A model: the places that it has, those that it was told to take or to release, and how many it needed at recent
    looks. `busy`: how many places it kept busy at recent looks. `light`: whether its places may be lent to others.
    `lost`: the places that its daemon has given up.
    """

    name: str
    terms: Terms
    has: set[str] = field(default_factory=set)
    taking: set[str] = field(default_factory=set)
    releasing: set[str] = field(default_factory=set)
    needs: deque[int] = field(default_factory=lambda: deque([0], maxlen=LOOKS_TO_SHRINK))
    busy: deque[float] = field(default_factory=lambda: deque([0.0] * LOOKS_TO_BE_ALONE, maxlen=LOOKS_TO_BE_ALONE))
    light: bool = True
    looks_since_refusal: int = LOOKS_AFTER_REFUSAL
    lost: set[str] = field(default_factory=set)

    def usable(self, places: Sequence[str]) -> Sequence[str]:
        """Those of `places` that the model's daemon has not given up; all, if it has given up each."""
        return [place for place in places if place not in self.lost] or places

    @property
    def all(self) -> set[str]:
        """The places where the model has threads, or soon will."""
        return self.has | self.taking

    @property
    def wanted(self) -> int:
        """How many places the model needs; 0 without frames. Brief needs do not count."""
        recent = list(self.needs)
        now = len(self.has)
        more, fewer = min(recent[-LOOKS_TO_GROW:]), max(recent)
        if now and not fewer:
            return 0
        return more if more > now else max(1, min(now, fewer)) if fewer else 0

    def note_busy(self, places: float, part: float) -> None:
        """Note how many places were busy, and update `light`. `part`: the fraction of its places that the model gets at
        least, beside others that compute there. Its frames take longer by that, so alone it would keep as little as
        `part` times as many places busy.
        """
        self.busy.append(places)
        lately = list(self.busy)
        if self.light:
            looks, full = (LOOKS_TO_GROW, FILLED) if part == 1 else (LOOKS_TO_BE_ALONE, HAS_TOO_LITTLE)
            self.light = fmean(lately[-looks:]) <= full * len(self.has)
            if not self.light:  # looks while it was light do not count any more
                self.busy.extend([places] * LOOKS_TO_BE_ALONE)
        else:
            self.light = part * fmean(lately[-LOOKS_TO_SHRINK:]) <= LIGHT


@dataclass(slots=True)
class _Moves:
    """When a place last moved, and for how long it then stays."""

    rest_s: float
    at_s: float = -math.inf


class Dealer:
    """`places`: those that may be dealt, the best first. `rests_s`: the shortest and the longest time that a place
    stays after a move. Read its fields freely; change it only through `handle`.
    """

    def __init__(self, places: Sequence[str], rests_s: tuple[float, float] = RESTS_S) -> None:
        self.places = tuple(places)
        self.models: dict[str, DealtModel] = {}
        self._least_s, self._most_s = rests_s
        self._moves = {place: _Moves(self._least_s) for place in places}
        self._said: list[DealerInstruction] = []
        self._apply: Mapping[type, Callable[[Any], None]] = {
            ModelCame: self._came,
            ModelFound: self._found,
            ModelLeft: self._left,
            LoadSeen: self._seen,
            PlaceTaken: self._taken,
            PlaceGivenBack: self._released,
            NotMoved: self._not_moved,
            PlaceAbandoned: self._given_up,
            DaemonBegan: lambda event: self.models[event.model].lost.clear(),
            PlacesAllowed: self._allowed,
        }

    def handle(self, event: DealerEvent | PlacesAllowed, now_s: float) -> list[DealerInstruction]:
        """Apply one event; the instructions are to be carried out in their order, before the next."""
        if isinstance(event, ModelCame | ModelFound | PlacesAllowed) or event.model in self.models:
            self._apply[type(event)](event)
        self._deal(now_s)
        said, self._said = self._said, []
        return said

    @property
    def shared(self) -> Mapping[str, list[str]]:
        by_place = {place: [name for name, dealt in self.models.items() if place in dealt.all] for place in self.places}
        return {place: names for place, names in by_place.items() if len(names) > 1}

    def crowded(self, model: str) -> tuple[str, ...]:
        """The model's places, with those that it is about to get, on which other models have frames computed."""
        places = self.models[model].all
        return tuple(place for place in self.places if place in places and self._working_at(place, model) > 1)

    # --- events -----------------------------------------------------------------------------------------------

    def _came(self, event: ModelCame) -> None:
        """Start a new model on places that no model has, else on the one that the fewest have."""
        dealt = self.models[event.model] = DealtModel(event.model, event.terms)
        held = {place: sum(place in other.all for other in self.models.values()) for place in self.places}
        free = [place for place in self.places if not held[place]]
        count = max(1, event.terms.least)
        chosen = free[:count] or [min(self.places, key=lambda place: held[place])]
        dealt.has.update(chosen)
        self._said.append(BeginModel(event.model, tuple(chosen)))

    def _found(self, event: ModelFound) -> None:
        self.models[event.model] = DealtModel(event.model, event.terms, set(event.places))

    def _left(self, event: ModelLeft) -> None:
        del self.models[event.model]

    def _seen(self, event: LoadSeen) -> None:
        dealt = self.models[event.model]
        has, busy = len(dealt.has), event.busy_places
        dealt.looks_since_refusal = 0 if event.refused else dealt.looks_since_refusal + 1
        refuses = dealt.looks_since_refusal < LOOKS_AFTER_REFUSAL
        if refuses:
            busy = max(busy, has)
        if busy < IDLE_PLACES and not event.in_flight:
            needed = 0
        elif refuses or (busy >= FILLED * has and event.in_flight > has):
            needed = 2 * has  # how many it can use shows only once it has more
        else:
            needed = max(1, math.ceil(busy / FILLED))
        part = fmean(1 / self._working_at(place, event.model) for place in dealt.has)
        dealt.note_busy(busy, part)
        most = len(self.places) if dealt.terms.most is None else dealt.terms.most
        dealt.needs.append(min(needed, 1 if dealt.light and part < 1 else most))

    def _working_at(self, place: str, model: str) -> int:
        """How many models compute on the place: this one, and others that have frames."""
        return 1 + sum(place in other.has and any(other.needs) for other in self.models.values() if other.name != model)

    def _taken(self, event: PlaceTaken) -> None:
        dealt = self.models[event.model]
        dealt.taking.discard(event.place)
        dealt.lost.discard(event.place)
        dealt.has.add(event.place)

    def _released(self, event: PlaceGivenBack) -> None:
        dealt = self.models[event.model]
        dealt.releasing.discard(event.place)
        dealt.has.discard(event.place)

    def _not_moved(self, event: NotMoved) -> None:
        dealt = self.models[event.model]
        dealt.taking.discard(event.place)
        dealt.releasing.discard(event.place)

    def _given_up(self, event: PlaceAbandoned) -> None:
        self.models[event.model].lost.add(event.place)

    def _allowed(self, event: PlacesAllowed) -> None:
        self.places = event.places
        for place in event.places:
            self._moves.setdefault(place, _Moves(self._least_s))

    # --- dealing ----------------------------------------------------------------------------------------------

    def _deal(self, now_s: float) -> None:
        """Move places towards the present target: first releases, then what models are to take."""
        target = deal(self.places, self.models.values())
        for name, dealt in self.models.items():
            staying, usable = dealt.has - dealt.releasing, dealt.usable(self.places)
            for place in sorted(staying - target[name], key=lambda place: (place in usable, place)):
                if len(staying) > 1 and (place not in usable or self._may_move(place, now_s)):
                    staying.discard(place)
                    dealt.releasing.add(place)
                    self._said.append(Release(name, place))
        for name, dealt in self.models.items():
            must_move = dealt.all.isdisjoint(dealt.usable(self.places))
            for place in sorted(target[name] - dealt.all):
                if self._is_free(place, target) and (must_move or self._may_move(place, now_s)):
                    self._note_move(place, now_s)
                    dealt.taking.add(place)
                    self._said.append(Take(name, place))

    def _is_free(self, place: str, target: Mapping[str, set[str]]) -> bool:
        return all(place in target[other.name] for other in self.models.values() if place in other.all)

    def _may_move(self, place: str, now_s: float) -> bool:
        return now_s >= self._moves[place].at_s + self._moves[place].rest_s

    def _note_move(self, place: str, now_s: float) -> None:
        """Note that a place was given to a model. If its last move was recent, it now stays twice as long."""
        moves = self._moves[place]
        rested_s = now_s - moves.at_s
        if rested_s < 4 * moves.rest_s:
            moves.rest_s = min(self._most_s, 2 * moves.rest_s)
        elif rested_s > 8 * moves.rest_s:
            moves.rest_s = self._least_s
        moves.at_s = now_s


def deal(places: Sequence[str], models: Iterable[DealtModel]) -> dict[str, set[str]]:
    """The places that each model is to have. A model keeps its places if they are as good as any others."""
    dealt = list(models)
    wanted = _wanted(places, dealt)
    counts = _counts(len(places), dealt, wanted)
    working = [model for model in dealt if counts[model.name]]
    crowded = len(working) > len(places)
    target = _firsts_in_a_crowd(places, working) if crowded else _firsts(places, working)
    claimed = Counter(place for firsts in target.values() for place in firsts)
    for model in sorted(working, key=lambda model: len(model.usable(places))):
        for _ in range(counts[model.name] - 1):
            further = _best(places, claimed, model)
            if claimed[further]:
                break
            target[model.name].add(further)
            claimed[further] += 1
    if not crowded:
        for guest, place in _lent(places, working, target, wanted):
            target[guest].add(place)
            claimed[place] += 1
    idle: Counter[str] = Counter()
    for model in dealt:
        usable = model.usable(places)
        kept = model.has.intersection(usable)
        if model.name not in target:  # its warm worker stays, and so do further places that nobody wants
            unclaimed = {place for place in kept if not claimed[place]}
            stays = sorted(kept) or usable
            target[model.name] = unclaimed or {min(stays, key=lambda place: (claimed[place], idle[place]))}
            idle.update(target[model.name])
        elif not crowded:  # a model with frames keeps unclaimed places, and a light one keeps all
            others = set().union(*(other.has for other in dealt if other is not model))
            target[model.name] |= {place for place in kept - others if not claimed[place]}
            if model.light and len(model.has) <= (model.terms.most or len(places)):
                theirs = [target[other.name] for other in dealt if other.terms.least and other is not model]
                target[model.name] |= kept.difference(*theirs)
    return target


def _firsts(places: Sequence[str], working: Sequence[DealtModel]) -> dict[str, set[str]]:
    """One place for each model with frames; who can use the fewest chooses first, then who has fewest."""
    claimed: Counter[str] = Counter()
    firsts: dict[str, set[str]] = {}
    for model in sorted(working, key=lambda model: (len(model.usable(places)), len(model.has), model.name)):
        first = _best(places, claimed, model)
        claimed[first] += 1
        firsts[model.name] = {first}
    return firsts


def _firsts_in_a_crowd(places: Sequence[str], working: Sequence[DealtModel]) -> dict[str, set[str]]:
    """One place for each model with frames, shared evenly; models stay where they are if they can."""
    room = math.ceil(len(working) / len(places))
    claimed: Counter[str] = Counter()
    firsts: dict[str, set[str]] = {}
    for model in working:
        own = [place for place in model.usable(places) if place in model.has and claimed[place] < room]
        if own:
            claimed[own[0]] += 1
            firsts[model.name] = {own[0]}
    for model in working:
        if model.name not in firsts:
            first = min(model.usable(places), key=lambda place: claimed[place])
            claimed[first] += 1
            firsts[model.name] = {first}
    return firsts


def _lent(
    places: Sequence[str], working: Sequence[DealtModel], target: Mapping[str, set[str]], wanted: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Yield (model, place) for places that models share. A model with too few gets places of light models, each lent to
    one model at most. Two models with a single place each share both, if either has too few or they share them already,
    and their daemons have given up none.
    """
    of_light = [place for model in working if model.light and not model.terms.least for place in target[model.name]]
    has = {model.name: len(target[model.name]) for model in working}
    while of_light:
        hungry = [model for model in working if not model.light and has[model.name] < wanted[model.name]]
        hungry = [model for model in hungry if not model.lost.issuperset(of_light)]
        if not hungry:
            break
        guest = min(hungry, key=lambda model: (has[model.name] / model.terms.share, model.name))
        lent = [place for place in of_light if place not in guest.lost]
        place = min(lent, key=lambda place: (place not in guest.has, places.index(place)))
        of_light.remove(place)
        has[guest.name] += 1
        yield guest.name, place
    single = [model for model in working if has[model.name] == 1 and not model.light and _may_share(model)]
    short = {model.name for model in single if wanted[model.name] > 1}
    while single:
        model = single.pop(0)
        together = [other for other in single if model.has & target[other.name] or other.has & target[model.name]]
        partners = together or [other for other in single if short & {model.name, other.name}]
        if partners:
            single.remove(partners[0])
            own, partners_own = {*target[model.name]}, {*target[partners[0].name]}
            yield from ((model.name, place) for place in partners_own)
            yield from ((partners[0].name, place) for place in own)


def _may_share(model: DealtModel) -> bool:
    """Whether a model that has a single place may have half of two."""
    return not model.terms.least and model.terms.most != 1 and not model.lost


def _best(places: Sequence[str], claimed: Mapping[str, int], model: DealtModel) -> str:
    """Return a place that the fewest models have claimed, one that the model has already if possible."""
    usable = model.usable(places)
    return min(usable, key=lambda place: (claimed[place], place not in model.has, places.index(place)))


def _wanted(places: Sequence[str], models: Sequence[DealtModel]) -> dict[str, int]:
    """How many of its usable places each model wants: at least its `least`; without `least`, 0 if it has no frames."""
    return {model.name: min(max(model.wanted, model.terms.least), len(model.usable(places))) for model in models}


def _counts(place_count: int, models: Sequence[DealtModel], wanted: Mapping[str, int]) -> dict[str, int]:
    """How many places each model is to have to itself: 0 for one without frames, which still keeps its worker.

    Each model with frames gets one place, or its `least` if there are enough for all. Then the model with the fewest
    places for its share gets the next one, until no model wants more.
    """
    counts = {model.name: min(wanted[model.name], max(1, model.terms.least)) for model in models}
    if sum(counts.values()) > place_count:
        counts = {name: min(1, count) for name, count in counts.items()}
    left = place_count - sum(counts.values())
    shares = {model.name: model.terms.share for model in models}
    while left > 0:
        hungry = [name for name in counts if 0 < counts[name] < wanted[name]]
        if not hungry:
            break
        name = min(hungry, key=lambda name: (counts[name] / shares[name], name))
        counts[name] += 1
        left -= 1
    return counts
