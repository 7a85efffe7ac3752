"""The daemons of several models: start, take over, watch and restart them, on the places that the dealer deals.

If the host process dies, its daemons go on serving. The next host process at the same address takes them over.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from shisha_rt.core import dealer as de
from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.tables import PlacePhase
from shisha_rt.daemon.event_log import EventLog
from shisha_rt.daemon.host_share import HostShare
from shisha_rt.errors import Code
from shisha_rt.machine.machine import Machine
from shisha_rt.repository.entries import ModelEntry, identity_of
from shisha_rt.repository.hosted import StartOptions
from shisha_rt.repository.model_daemon import (
    DaemonEnded,
    Fields,
    Home,
    ModelDaemon,
    end_left,
    last_number,
    left_daemons,
    refusal,
)

log = logging.getLogger(__name__)

ENDS_WITHIN_S: Final = 40.0
_MOST_FAILURES: Final = 5
"""A model is given up after this many deaths of its daemon in a row, without serving for `_SERVED_S` in between."""
_SERVED_S: Final = 10.0
_FIRST_DELAY_S: Final = 0.5
_LEAST_APART_S: Final = 0.1
"""A load is not derived from two reports closer than this: a daemon that stood still answers several at once."""
_OUT: Final = PlacePhase.OUT.name.lower()
"""State, in a daemon's status, of a place that has no worker and gets none."""


@dataclass(frozen=True, slots=True)
class SeenLoad:
    """What a daemon reported at `at_s`: seconds of computing, and number of frames refused, since it began."""

    at_s: float
    busy_s: float
    refused: int


@dataclass(slots=True, eq=False)
class ServedModel:
    """A model, its daemons, and what they have reported.

    - `daemon`: where requests go; `coming`: the daemon of another version, which takes over once it serves; `previous`:
      the daemon of the version before.
    - `leaving`: replaced daemons, each with the time since which it has had nothing in flight (inf: it has something,
      or that is unknown; -inf: it is being ended).
    - `shadow`: how many frames `coming` computes beside `daemon` before it takes over; `shadowed`: the result.
    - `then`: called when loading ends, with what went wrong, or None if the model serves.
    - `is_unloaded`: the model has no daemon and gets none; `failed`: as it was given up, which no client was told.
    - `kept`: the entry to go back to if a load fails; None: the model is then forgotten.
    - `reason`: why the model does not serve; `again_at_s`: when its daemon is to be started again, inf if not.
    - `said`, `statistics`: what the daemon answered last to `status` and `model_statistics`.
    """

    entry: ModelEntry
    kept: ModelEntry | None = None
    daemon: ModelDaemon | None = None
    coming: ModelDaemon | None = None
    leaving: dict[ModelDaemon, float] = field(default_factory=dict)
    previous: ModelDaemon | None = None
    shadow: int = 0
    shadowed: Fields = field(default_factory=dict)
    then: list[Callable[[str | None], None]] = field(default_factory=list)
    reason: str = "it is being started"
    failures: int = 0
    again_at_s: float = math.inf
    ready_s: float = math.inf
    is_unloaded: bool = False
    failed: bool = False
    said: Fields = field(default_factory=dict)
    statistics: Sequence[Any] = ()
    seen: SeenLoad | None = None

    @property
    def serving(self) -> ModelDaemon | None:
        return self.daemon if self.daemon is not None and self.daemon.ready else None

    @property
    def ready(self) -> bool:
        """Whether a request would be computed now: the daemon answers, and its last status says that it can run."""
        serving = self.serving
        return serving is not None and not serving.is_silent and bool(self.said.get("ready", True))

    @property
    def why_not_ready(self) -> str:
        """The reason, in one line; empty if it is ready."""
        if self.ready:
            return ""
        if self.serving is not None and self.serving.is_silent:
            return "its daemon does not answer: it may be stopped"
        return self.reason or "no worker can run a stage of its plan now"

    @property
    def daemons(self) -> list[ModelDaemon]:
        return [daemon for daemon in (self.daemon, self.coming, *self.leaving) if daemon is not None]

    def forget_daemon(self) -> None:
        """Forget what the daemon has reported: it does not serve any more."""
        self.said, self.statistics, self.seen = {}, (), None

    def tell(self, trouble: str | None) -> None:
        """Answer those that wait for the end of loading. `trouble`: what went wrong; None if the model serves."""
        waiting, self.then = self.then, []
        for then in waiting:
            then(trouble)


class Fleet:
    """`models`: by name, including unloaded ones. `start`: options for starting daemons. `stopping`: start no more.

    `changed`: called when a model is added, loaded or unloaded, or another version of it serves.
    """

    def __init__(self, share: HostShare, home: Home, start: StartOptions, changed: Callable[[], None]) -> None:
        self.machine = share.machine
        self.journal = EventLog()
        self.models: dict[str, ServedModel] = {}
        self.stopping = False
        self._share = share
        self._home = home
        self._start_options = start
        self._changed = changed
        self._dealer = de.Dealer([*self._allowed])
        self._not_moved: list[de.NotMoved] = []
        self._numbers = itertools.count(1)

    @property
    def _allowed(self) -> Iterator[str]:
        """The places that the host's limits leave, the best first."""
        ranked = sorted(self.machine.places, key=lambda place: place.rank)
        return (place.name for place in ranked if place.name not in self._share.released)

    @property
    def shared(self) -> Mapping[str, list[str]]:
        """The places that several models share, each with the names of these models."""
        return self._dealer.shared

    # --- daemons ----------------------------------------------------------------------------------------------

    def begin(self, entries: Sequence[ModelEntry]) -> None:
        """Take over daemons that a dead host process has left, if one fits the model's entry; start all others."""
        left = list(left_daemons(self._home.folder))
        self._numbers = itertools.count(1 + last_number(self._home.folder))
        for entry in entries:
            served = self.models[entry.name] = ServedModel(entry, kept=entry)
            fit = next((record for record in left if record.identity == identity_of(entry)), None)
            if fit is not None and self._adopt(served, fit):
                left.remove(fit)
        end_left(self._home.folder, left, ENDS_WITHIN_S)
        for served in self.models.values():
            if served.daemon is None:
                self.deal(de.ModelCame(served.entry.name, served.entry.terms))

    def _adopt(self, served: ServedModel, record: Any) -> bool:
        """Take over the daemon of this record, left by a dead host process; False if it has ended."""
        daemon = ModelDaemon(served.entry, record.number, self._home)
        try:
            daemon.adopt(record)
        except OSError:
            return False
        served.daemon = daemon
        daemon.ask("status", lambda said: self._adopted(served, daemon, said))
        return True

    def _adopted(self, served: ServedModel, daemon: ModelDaemon, said: Fields) -> None:
        """Tell the dealer the places of a daemon that was taken over; end the daemon if the machine has others now."""
        if "status" not in said:
            return  # it has just ended
        known = {place["name"]: tuple(place["cores"]) for place in said["status"]["places"]}
        if any(known.get(place.name) != place.cores for place in self.machine.places):
            log.warning("%s: its daemon lacks places of this process; it is started again", served.entry.name)
            daemon.terminate()
            return
        places = [place["name"] for place in said["status"]["places"] if place["available"]]
        self.deal(de.ModelFound(served.entry.name, served.entry.terms, tuple(places)))
        self._note_ready(served, taken_over=True)

    def look(self, now_s: float) -> None:
        """Called periodically: ask daemons for their load, start those whose delay is over, kill those that hang."""
        for name, served in list(self.models.items()):
            if served.serving is not None:
                served.serving.ask("status", partial(self._heard, served, served.serving))
            if now_s >= served.again_at_s and not self.stopping:
                served.again_at_s = math.inf
                if name in self._dealer.models:
                    self._start(served, tuple(self.places_of(name)))
                else:  # its daemon was taken over, but ended before it reported its places
                    self.deal(de.ModelCame(name, served.entry.terms))
            if served.serving is not None and now_s > served.ready_s + _SERVED_S:
                served.failures = 0
            for daemon in served.daemons:
                daemon.look()
        not_moved, self._not_moved = self._not_moved, []
        for late in not_moved:
            self.deal(late)

    def _start(self, served: ServedModel, places: tuple[str, ...]) -> None:
        served.daemon = self.started(served.entry, places)
        if served.daemon is None:
            self._put_off(served, "no process could be started for it", time.monotonic())

    def started(self, entry: ModelEntry, places: tuple[str, ...]) -> ModelDaemon | None:
        """Start a daemon on these places; None if no process could be started."""
        spare = frozenset(place.name for place in self.machine.places) - {*places}
        daemon = ModelDaemon(entry, next(self._numbers), self._home)
        machine: Machine = replace(self.machine, spare=spare)
        leases = None if self._share.leases.fault else self._share.leases.folder
        try:
            daemon.start(machine, leases, self._start_options)
        except OSError as error:
            log.warning("%s: %s", entry.name, error)
            return None
        starting = event_log.ModelStarting(model=entry.name, version=entry.version, places=places)
        self.journal.write(starting, "the dealer")
        return daemon

    def serves(self, served: ServedModel, now_s: float) -> None:
        """Note that the model's daemon serves from now on."""
        served.ready_s = now_s
        self._note_ready(served, taken_over=False)
        served.tell(None)

    def _note_ready(self, served: ServedModel, *, taken_over: bool) -> None:
        entry = served.kept = served.entry
        served.reason = ""
        serves = event_log.ModelServes(model=entry.name, version=entry.version, taken_over=taken_over)
        self.journal.write(serves, "its daemon")
        self.deal(de.DaemonBegan(entry.name))
        self._changed()

    def ended(self, served: ServedModel, ended: DaemonEnded, now_s: float) -> None:
        """Note that the model's daemon has ended. Start it again after a delay, unless it refused to start at all."""
        served.daemon = None
        if not served.is_unloaded and not self.stopping:
            served.failures = _MOST_FAILURES if ended.refused else served.failures
            self._put_off(served, ended.reason, now_s)

    def _put_off(self, served: ServedModel, reason: str, now_s: float) -> None:
        """Start the daemon again after a delay, which doubles each time; give the model up after `_MOST_FAILURES`."""
        name, served.reason, served.daemon = served.entry.name, reason, None
        served.failures += 1
        served.ready_s = math.inf
        served.forget_daemon()
        self.end_moves(name)
        if served.failures < _MOST_FAILURES:
            served.again_at_s = now_s + _FIRST_DELAY_S * 2 ** (served.failures - 1)
            return
        entry, served.is_unloaded, served.failed = served.entry, True, not served.then
        self.journal.write(event_log.ModelGivenUp(model=name, version=entry.version, reason=reason), "its deaths")
        log.warning("%s is given up: %s", name, reason)
        self.deal(de.ModelLeft(name))
        if served.then and served.kept is not None:
            served.entry = served.kept
        elif served.then and not served.leaving:
            del self.models[name]
        self._changed()
        served.tell(reason)

    @property
    def daemons(self) -> list[ModelDaemon]:
        return [daemon for served in self.models.values() for daemon in served.daemons]

    # --- dealing ----------------------------------------------------------------------------------------------

    def places_of(self, model: str) -> list[str]:
        dealt = self._dealer.models.get(model)
        return [] if dealt is None else sorted(dealt.has)

    def staying_places(self, model: str) -> tuple[str, ...]:
        """Names of the places that are dealt to a model and not being released."""
        dealt = self._dealer.models[model]
        return tuple(sorted(dealt.has - dealt.releasing))

    def look_at_host(self, now_s: float, processes: Callable[[], tuple[Iterable[int], Iterable[int]]]) -> None:
        """Called periodically: take and deal places as the host allows. `processes`: as for `HostShare.look`."""
        if not self._share.is_due(now_s):
            return
        allotted = self._share.look(now_s, processes, self._is_in_use)
        self._share.leases.share()  # daemons hold the cores too, and outlive this process
        if allotted is not None:
            self.journal.write(allotted, "the host")
            self.deal(de.PlacesAllowed(tuple(self._allowed)))

    def _is_in_use(self, place: str) -> bool:
        """Whether a daemon has the place, or may have it, as daemons that were replaced or are to take over may."""
        others = any(served.leaving or served.coming is not None for served in self.models.values())
        return others or any(place in dealt.all for dealt in self._dealer.models.values())

    def models_on(self, place: str) -> list[str]:
        return [name for name, dealt in self._dealer.models.items() if place in dealt.has]

    def places_dealt(self) -> Mapping[str, int]:
        return {name: len(dealt.has) for name, dealt in list(self._dealer.models.items())}

    def _heard(self, served: ServedModel, daemon: ModelDaemon, said: Fields) -> None:
        """Derive a daemon's load from its status, and report it to the dealer."""
        if "status" not in said or daemon is not served.serving or served.entry.name not in self._dealer.models:
            return  # the daemon has just ended, was replaced, or was not taken over
        served.said = status = said["status"]
        frames = status["frames"]
        seen = SeenLoad(time.monotonic(), frames["busy_s"], frames["answered"].get(Code.RESOURCE_EXHAUSTED.value, 0))
        if served.seen is not None:
            seconds, refused = seen.at_s - served.seen.at_s, seen.refused - served.seen.refused
            if seconds < _LEAST_APART_S:
                return
            busy_places = (seen.busy_s - served.seen.busy_s) / seconds * _places_a_team(status)
            self.deal(de.LoadSeen(served.entry.name, busy_places, frames["in_flight"], refused))
        served.seen = seen
        daemon.ask("model_statistics", partial(self._note_statistics, served, daemon))
        self._compare_places(daemon, status)
        self._tell_crowded(daemon)

    def _tell_crowded(self, daemon: ModelDaemon) -> None:
        """Tell the daemon on which places other models compute too, lest its tuner take the machine for slow."""
        crowded = self._dealer.crowded(daemon.entry.name)
        if daemon.ready and crowded != daemon.crowded:
            daemon.crowded = crowded
            daemon.ask("crowded", lambda _: None, places=crowded)

    def _note_statistics(self, served: ServedModel, daemon: ModelDaemon, said: Fields) -> None:
        if daemon is served.serving:
            served.statistics = said.get("model_stats", served.statistics)

    def deal(self, event: de.DealerEvent | de.PlacesAllowed) -> None:
        """Hand an event to the dealer, and carry out its instructions."""
        for instruction in self._dealer.handle(event, time.monotonic()):
            match instruction:
                case de.BeginModel(model, places):
                    self._start(self.models[model], places)
                case de.Take(model, place):
                    if (daemon := self.models[model].daemon) is not None:
                        self._tell_crowded(daemon)
                    self._move(model, place, de.PlaceTaken(model, place))
                case de.Release(model, place):
                    self._move(model, place, de.PlaceGivenBack(model, place))

    def _move(self, model: str, place: str, done: de.PlaceTaken | de.PlaceGivenBack) -> None:
        served, taken = self.models[model], isinstance(done, de.PlaceTaken)
        daemon = None if served.coming is not None else served.serving
        if daemon is None:  # there is none, or another is about to take over
            self._not_moved.append(de.NotMoved(model, place))
            return

        def then(said: Fields) -> None:
            dealt = self._dealer.models.get(model)
            if dealt is None or place not in (dealt.taking if taken else dealt.releasing):
                return  # `end_moves` has ended the move meanwhile
            if refusal(said) is not None or said.get("state") != ("up" if taken else "down"):
                self._not_moved.append(de.NotMoved(model, place))  # it may be tried again, but not at once
                return
            kind = event_log.PlaceDealt if taken else event_log.PlaceTakenBack
            self.journal.write(kind(model=model, place=place), "the dealer")
            self.deal(done)

        daemon.ask("place_set", then, place=place, **({"up": True} if taken else {"down": True}))

    def end_moves(self, model: str) -> None:
        """End the moves of a daemon that is gone, or about to be replaced by a daemon on the places that stay."""
        dealt = self._dealer.models.get(model)
        if dealt is not None:
            for place in sorted(dealt.taking):
                self.deal(de.NotMoved(model, place))
            for place in sorted(dealt.releasing):
                self.deal(de.PlaceGivenBack(model, place))

    def _compare_places(self, daemon: ModelDaemon, status: Fields) -> None:
        """Tell the dealer which places the daemon has given up, or has again. Take down places that the daemon has and
        the dealer has not dealt to it, as after a move that `end_moves` has ended.
        """
        model = daemon.entry.name
        dealt = self._dealer.models[model]
        for place in status["places"]:
            name = place["name"]
            if place["available"] and name in dealt.lost:
                self.deal(de.PlaceTaken(model, name))
            elif place["available"] and name not in dealt.all:
                daemon.ask("place_set", lambda _: None, place=name, down=True)
            elif place["state"] == _OUT and name in dealt.has - dealt.releasing - dealt.lost:
                if place["given_up"]:  # else an operator has taken it down
                    log.warning("%s: its daemon has given up %s: %s", model, name, place["last_error"])
                self.deal(de.PlaceAbandoned(model, name))


def _places_a_team(status: Fields) -> float:
    """Mean number of places in a team of the live plan."""
    teams = [len(team["places"]) for stage in status["plan"]["stages"] for team in stage["teams"]]
    return sum(teams) / len(teams) if teams else 1.0
