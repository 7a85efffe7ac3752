"""A plan is a small graph of stages: which layers form which stage, on which places, after which others.

A pipeline is the plan whose stages form a chain. Plans are values: two with the same stages are equal. The number under
which a plan is, was, or was to be live (its epoch) belongs to the daemon's lifecycle, not to the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split
from shisha_rt.plan.engine import DEFAULT_ENGINE, StageEngine

Team: TypeAlias = tuple[str, ...]
"""Names of places whose cores compute a part together, in the worker of the first, their lead. Usually one place."""

MOST_BATCH: Final = 64
"""The largest batch that a stage may have."""


def team_name(team: Team) -> str:
    return "+".join(team)


def behind(index: int) -> tuple[int, ...]:
    """`after` of a stage in a chain: the stage before it, if there is one."""
    return (index - 1,) if index else ()


@dataclass(frozen=True, slots=True)
class Stage:
    """A piece of the network that is computed for a frame in one go.

    `work`: runs of layers (first and last, inclusive, from 0), ascending and apart; usually one. `teams`: each frame
    runs on one of them; several are copies. `after`: the earlier stages (indices) whose results it needs; empty: it
    needs only the network's input.

    `placement`: the device of each operator, in the graph's order; empty if the places have no devices to choose from,
    or none is chosen yet. It is left out of comparisons, as it follows from the layers, the places and the current
    costs on their devices.

    `paced_s`: (teams,) seconds of the placement on each team at full speed, where stages are paced by known costs
    (`timing = "modelled"`); empty if they are not, or the costs are not known yet. It follows from the placement.

    `split`: set if the stage is a shard, whose work is the split layers, or a join, whose work begins with the split
    layers and may have further layers.

    `engine`: computes the stage, if its places have no devices. Only the default engine computes stages of a cut
    network.

    `batch`: the most frames that are computed together.
    """

    work: tuple[Span, ...]
    teams: tuple[Team, ...]
    after: tuple[int, ...] = ()
    placement: tuple[str, ...] = field(default=(), compare=False)
    paced_s: tuple[float, ...] = field(default=(), compare=False)
    split: Split | None = None
    engine: StageEngine = DEFAULT_ENGINE
    batch: int = 1

    @property
    def first(self) -> int:
        return self.work[0][0]

    @property
    def last(self) -> int:
        return self.work[-1][1]

    @property
    def layers(self) -> Iterator[int]:
        return (layer for first, last in self.work for layer in range(first, last + 1))

    @property
    def layer_count(self) -> int:
        return sum(last - first + 1 for first, last in self.work)

    @property
    def leads(self) -> tuple[str, ...]:
        """(teams,): the place whose worker each team computes in."""
        return tuple(team[0] for team in self.teams)

    @property
    def place(self) -> str:
        """The lead of the first team: of a stage on one place, that place."""
        return self.teams[0][0]

    @property
    def team_name(self) -> str:
        """Name of the first team, which stands for the others; for a stage on one place, that place."""
        return team_name(self.teams[0])

    @property
    def places(self) -> tuple[str, ...]:
        """Every place of every team of the stage."""
        return tuple(place for team in self.teams for place in team)

    @property
    def is_plain(self) -> bool:
        """Whether the stage is one run of whole layers on one place."""
        return len(self.work) == 1 and len(self.places) == 1 and self.split is None

    def __str__(self) -> str:
        on = ", ".join(map(team_name, self.teams))
        runs = ",".join(f"{first}-{last}" for first, last in self.work)
        words = [f"{on}: {runs}"]
        if self.split is not None:
            words.append(str(self.split))
        if self.engine != DEFAULT_ENGINE:
            words.append(self.engine)
        if self.batch > 1:
            words.append(f"x{self.batch}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Pool:
    """Teams that serve the same stages (indices, ascending), with one queue."""

    teams: tuple[Team, ...]
    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Stages, each listed later than all stages that it is `after`. Unused places are not listed."""

    stages: tuple[Stage, ...]

    @classmethod
    def of(cls, stages: Iterable[tuple[int, int, str]]) -> Plan:
        """A chain, each stage on one place, from (first, last, place) triples."""
        return cls.chain((first, last, ((place,),)) for first, last, place in stages)

    @classmethod
    def chain(cls, stages: Iterable[tuple[int, int, Iterable[Iterable[str]]]]) -> Plan:
        """A chain from (first, last, teams) triples: `(0, 9, [["a"], ["b", "c"]])` is on the place a, or on b and c.

        A name instead of a team is a team of one, as in the written form of plans.
        """
        return cls(
            tuple(
                Stage(
                    ((first, last),),
                    tuple((team,) if isinstance(team, str) else tuple(team) for team in teams),
                    behind(index),
                )
                for index, (first, last, teams) in enumerate(stages)
            )
        )

    @property
    def places(self) -> tuple[str, ...]:
        """Every place in use, each once, in the order of the stages."""
        return tuple(dict.fromkeys(place for stage in self.stages for place in stage.places))

    @property
    def leads(self) -> tuple[str, ...]:
        """Every place whose worker has a stage, each once, in the order of the stages."""
        return tuple(dict.fromkeys(lead for stage in self.stages for lead in stage.leads))

    @property
    def is_chain(self) -> bool:
        """Whether each stage comes after the one before it, and is one run of whole layers."""
        return all(
            len(stage.work) == 1 and stage.split is None and stage.after == behind(index)
            for index, stage in enumerate(self.stages)
        )

    @property
    def is_plain(self) -> bool:
        """A chain with each stage on a place of its own: what Shisha (2022) calls a pipeline."""
        places = [place for stage in self.stages for place in stage.places]
        return self.is_chain and all(stage.is_plain for stage in self.stages) and len(places) == len(set(places))

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Pools of the plan, in the order of their first stages."""
        pools: dict[frozenset[Team], list[int]] = {}
        for index, stage in enumerate(self.stages):
            pools.setdefault(frozenset(stage.teams), []).append(index)
        return tuple(Pool(self.stages[indices[0]].teams, tuple(indices)) for indices in pools.values())

    @property
    def followers(self) -> tuple[tuple[int, ...], ...]:
        """(stages,): the stages that directly come after each."""
        followers: list[list[int]] = [[] for _ in self.stages]
        for index, stage in enumerate(self.stages):
            for previous in stage.after:
                followers[previous].append(index)
        return tuple(map(tuple, followers))

    def ancestors(self, stage: int) -> frozenset[int]:
        """All stages whose results a stage (index) needs, directly or through others."""
        seen: set[int] = set()
        pending = list(self.stages[stage].after)
        while pending:
            reached = pending.pop()
            if reached not in seen:
                seen.add(reached)
                pending += self.stages[reached].after
        return frozenset(seen)

    @property
    def splits(self) -> tuple[tuple[int, ...], ...]:
        """Stages that carry each split, in the plan's order: its shards, and its join if there is one."""
        works: dict[tuple[object, ...], list[int]] = {}
        for index, stage in enumerate(self.stages):
            if stage.split is not None:
                works.setdefault(stage.split.whole, []).append(index)
        return tuple(map(tuple, works.values()))

    def stages_of(self, layer_count: int) -> tuple[tuple[int, ...], ...]:
        """(layers,): the stages that have each layer: one, unless the layer is split."""
        stages: list[list[int]] = [[] for _ in range(layer_count)]
        for index, stage in enumerate(self.stages):
            for layer in stage.layers:
                stages[layer].append(index)
        return tuple(map(tuple, stages))

    def joins(self, stage: int) -> bool:
        split = self.stages[stage].split
        return split is not None and split.joins

    def made_by(self, layer_count: int) -> tuple[tuple[int, ...], ...]:
        """(layers,): the stages that must be done to have each layer's results: of a split layer its join or shards."""
        return tuple(
            of_layer[-1:] if of_layer and self.joins(of_layer[-1]) else of_layer
            for of_layer in self.stages_of(layer_count)
        )

    def __str__(self) -> str:
        return " | ".join(f"{stage}{self._behind(index)}" for index, stage in enumerate(self.stages))

    def _behind(self, index: int) -> str:
        """Say which stages a stage is after; empty if that is the stage before it."""
        after = self.stages[index].after
        if after == behind(index):
            return ""
        return f" after {','.join(map(str, after))}" if after else " after the input"
