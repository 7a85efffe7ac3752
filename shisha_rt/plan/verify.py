"""The last look at a plan before it runs, whoever made it.

Written apart from the planners on purpose: it shares no code with them, so that a planner's mistake cannot
hide in its own checker. It says everything that is wrong, not just the first thing, up to a bound.

It runs in the daemon's loop on untrusted input, so sizes are checked first (R10): a plan with more stages, runs or
places than the model and machine have is not checked further. Otherwise the work is linear in plan and model: no stage
is compared with all others, and checking stops at `MOST_FAULTS`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Final

from shisha_rt.model.batches import why_not_together
from shisha_rt.model.spans import Span
from shisha_rt.model.split import MOST_SUMMED, Axis, Splittable
from shisha_rt.plan.engine import DEFAULT_ENGINE, StageEngine, is_openvino
from shisha_rt.plan.form import WrittenStage
from shisha_rt.plan.plan import Plan, Stage

MOST_FAULTS: Final = 100
_RUNS_NAMED: Final = 8
_STAGES_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class PlanRules:
    """What plans of one model on one machine may be.

    Cut c lies between layers c and c+1; `legal_cuts` None: every cut is legal. `needs` (layers,): the earlier layers
    whose tensors each layer reads; empty: each reads the layer before it. `operator_counts` (layers,) and the names of
    each place's `devices` are for placements.

    `kinds`: places of equal kind are interchangeable in teams and pools; empty: all are. `single`: places that may only
    be teams of one, because they are emulated. `far`: places on other hosts: also only teams of one, and never with
    shards. `weight_bytes` and `live_bytes` (layers,): see `costs.CostLayer`; `memory_bytes`: of the places that have a
    limit. `splits`: how runs of layers may be split; of what may not, `kept_whole` says why. `engines`: those that may
    compute a stage; of one that may not, `engines_barred` says why. `most_batch`: the most frames of one run. `mixing`
    and `tied` are as in `model.index.ModelIndex`; `one_by_one`: for places whose batch size must be 1, the reason.
    """

    layer_count: int
    places: tuple[str, ...]
    legal_cuts: frozenset[int] | None = None
    operator_counts: tuple[int, ...] = ()
    devices: Mapping[str, Collection[str]] = field(default_factory=dict)
    needs: tuple[frozenset[int], ...] = ()
    kinds: Mapping[str, Hashable] = field(default_factory=dict)
    single: frozenset[str] = frozenset()
    far: frozenset[str] = frozenset()
    weight_bytes: tuple[int, ...] = ()
    live_bytes: tuple[int, ...] = ()
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[tuple[Span, Axis], Splittable] = field(default_factory=dict)
    kept_whole: Mapping[tuple[Span, Axis], str] = field(default_factory=dict)
    engines: Collection[StageEngine] = (DEFAULT_ENGINE,)
    engines_barred: Mapping[StageEngine, str] = field(default_factory=dict)
    most_batch: int = 1
    mixing: tuple[str, ...] = ()
    tied: tuple[tuple[int, ...], ...] = ()
    one_by_one: Mapping[str, str] = field(default_factory=dict)

    def too_large(self, stages: Sequence[Stage | WrittenStage]) -> str | None:
        """What the plan has more of than the model and machine allow; None if nothing."""
        layers, places = self.layer_count, len(self.places)
        whole = sum(stage.split is None for stage in stages)
        if whole > layers:
            return f"the plan has {whole} stages, expected at most {layers}, one for each layer"
        for index, stage in enumerate(stages):
            if stage.split is not None and len(stage.split.shares) > places:
                return f"stage {index} has more shards of a layer than places: expected at most {places}"
            if len(stage.work) > layers:
                return f"stage {index} has {len(stage.work)} runs of layers, expected at most {layers}"
            on = len(stage.places)  # a `WrittenStage` lists teams here, so this is their number
            if on > places or (on := sum(map(len, stage.teams))) > places:
                return f"stage {index} is on {on} places, expected at most {places}"
            after = len(stage.after or ())
            if after > len(stages):
                return f"stage {index} is after {after} stages, expected at most the earlier ones"
        return None

    def problems(self, plan: Plan) -> list[str]:
        """Why `plan` cannot run, apart from its placement; empty if it can."""
        if not plan.stages:
            return ["the plan has no stages, expected at least one"]
        too_large = self.too_large(plan.stages)
        if too_large is not None:
            return [too_large]
        splits = plan.splits
        stages = len(plan.stages) - sum(len(split) - 1 for split in splits)
        if stages > self.layer_count:
            return [f"the plan has {stages} stages, expected at most {self.layer_count}, one for each layer"]
        fault = _first(
            _work(plan, self.layer_count),
            _splits(plan, splits, self),
            _order(plan),
            _teams(plan, self),
            _pools(plan, self),
            _engines(plan, self),
        )
        more = _cuts(plan, self), _needs(plan, self), _batches(plan, self), _memory(plan, self)
        return fault or _first(*more)  # these checks assume that there are none of the faults above

    def in_batches(self, plan: Plan, batch: int) -> Plan:
        """`plan` with batch size `batch` at each stage that may have it and has no batch size of its own.

        Unchanged if there is not enough memory for that.
        """
        if batch == 1:
            return plan
        most = (stage.batch if stage.batch > 1 or _alone(stage, self) else batch for stage in plan.stages)
        batched = Plan(tuple(replace(stage, batch=batch) for stage, batch in zip(plan.stages, most, strict=True)))
        return plan if any(_memory(batched, self)) else batched

    def are_alike(self, stage: Stage) -> bool:
        """Whether all teams of a stage are of one kind and size."""
        return len({_kind(team, self) for team in stage.teams}) == 1

    def placement_problems(self, plan: Plan) -> list[str]:
        """Faults of the placements of a plan that may run; without devices a placement must be empty."""
        faults = []
        for index, stage in enumerate(plan.stages):
            known = self.devices.get(stage.place, ())
            expected = sum(self.operator_counts[layer] for layer in stage.layers) if known else 0
            if len(stage.placement) != expected:
                faults.append(f"{_named(index, stage)} places {len(stage.placement)} operators, expected {expected}")
            for device in sorted(set(stage.placement) - set(known)) if known else ():
                faults.append(f"{_named(index, stage)} uses device {device!r}, expected one of {', '.join(known)}")
        return faults


def _first(*faults: Iterator[str]) -> list[str]:
    return list(islice(chain(*faults), MOST_FAULTS))


def _named(index: int, stage: Stage) -> str:
    runs = [f"{first}-{last}" for first, last in stage.work[:_RUNS_NAMED]]
    more = ["..."] if len(stage.work) > _RUNS_NAMED else []
    return f"stage {index} (layers {', '.join(runs + more)})"


def _work(plan: Plan, layer_count: int) -> Iterator[str]:
    """Yield faults of layers that are not in exactly one stage.

    A split layer counts as being in the first stage that carries the split.
    """
    stages_of: dict[int, list[int]] = {}
    carrier = {index: split[0] for split in plan.splits for index in split}
    whole = True
    for index, stage in enumerate(plan.stages):
        before = -2
        if not stage.work:
            yield f"stage {index} has no layers: empty stages are not listed"
        for first, last in stage.work:
            if last < first:
                yield f"{_named(index, stage)} is empty: empty stages are not listed"
            elif first <= before + 1:
                yield f"{_named(index, stage)}: expected its runs of layers in ascending order and apart"
            elif last >= layer_count:
                yield f"{_named(index, stage)} ends at layer {last}, the last one is {layer_count - 1}"
            for layer in range(first, min(last + 1, layer_count)):
                carriers = stages_of.setdefault(layer, [])
                counted = carrier[index] if stage.split and _within(layer, stage.split.span) else index
                if counted != index and counted in carriers:
                    continue
                carriers.append(counted)
                whole &= len(carriers) <= _STAGES_NAMED
            before = last
        if not whole:  # enough to tell what is wrong
            break
    for layers, stages in _runs({layer: tuple(stages_of.get(layer, ())) for layer in range(layer_count)}):
        if not stages and whole:
            yield f"{layers} in no stage, expected one"
        elif len(stages) > 1:
            yield f"{layers} in stages {_listed(stages)}, expected one"


def _runs(stages_of: Mapping[int, tuple[int, ...]]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each run of layers that are in the same stages: the run as text, and those stages."""
    first = 0
    for layer, stages in stages_of.items():
        if stages_of.get(layer + 1) != stages:
            yield (f"layer {layer} is" if first == layer else f"layers {first}-{layer} are"), stages
            first = layer + 1


def _within(layer: int, span: Span) -> bool:
    return span[0] <= layer <= span[1]


def _engines(plan: Plan, rules: PlanRules) -> Iterator[str]:
    """Yield faults of stages on a non-default engine: it takes no shards, and OpenVINO only the whole network."""
    for index, stage in enumerate(plan.stages):
        if stage.engine == DEFAULT_ENGINE:
            continue
        if stage.engine not in rules.engines:
            why = rules.engines_barred.get(stage.engine, f"expected {' or '.join(rules.engines)}")
            yield f"{_named(index, stage)} is to be computed by {stage.engine}: {why}"
        elif is_openvino(stage.engine) and stage.work != ((0, rules.layer_count - 1),):
            yield (
                f"{_named(index, stage)} is to be computed by {stage.engine}, which has no form of the network that is "
                f"cut: expected layers 0 to {rules.layer_count - 1}, or {DEFAULT_ENGINE}"
            )
        elif stage.split is not None:
            yield f"{_named(index, stage)} has a share of a layer: expected {DEFAULT_ENGINE}, not {stage.engine}"


def _splits(plan: Plan, splits: Collection[Sequence[int]], rules: PlanRules) -> Iterator[str]:
    """Yield faults of splits: shares must add up, one shard each, and a join exactly where one is needed."""
    for split in splits:
        carried = plan.stages[split[0]].split
        assert carried is not None  # every stage in `split` carries one
        (first, last), axis, shares = carried.whole
        layers = f"layers {first}-{last}"
        known = rules.splits.get((carried.span, axis))
        if known is None:
            why = rules.kept_whole.get((carried.span, axis))
            yield f"{layers} cannot be split by {axis}" + (f": {why}" if why else _instead(carried.span, rules))
            continue
        if len(shares) < 2 or min(shares) < 1 or sum(shares) != known.units:
            yield f"{layers} split by {axis} in {_listed(shares)}: expected shares that make up {known.units}"
        elif any(share % known.block for share in shares[:-1]):
            yield (
                f"{layers} split by {axis} in {_listed(shares)}: expected multiples of {known.block}, "
                "except for the last share"
            )
        if known.summed and len(shares) > MOST_SUMMED:
            yield f"{layers} split by {axis} in {len(shares)}: expected at most {MOST_SUMMED}, whose sums have rooms"
        parts = [part_split.part for index in split if (part_split := plan.stages[index].split)]
        joined = known.summed or known.joined
        if parts != list(range(len(shares) + joined)):
            expected = f"one for each of {len(shares)} shares" + (", and then one that joins them" if joined else "")
            yield f"{layers} split by {axis} stand in {len(split)} stages, expected {expected}"
        for index in split:
            yield from _split_work(index, plan.stages[index], carried.span)


def _split_work(index: int, stage: Stage, span: Span) -> Iterator[str]:
    """Yield a fault of a stage's work: a shard has exactly the split layers; a join begins with them."""
    first, last = span
    if stage.split is not None and stage.split.joins:
        if not stage.work or stage.first != first or stage.work[0][1] < last:
            yield f"{_named(index, stage)} joins shards of layers {first}-{last}: expected it to begin with those"
    elif stage.work != (span,):
        yield f"{_named(index, stage)} has a shard of layers {first}-{last}: expected these layers alone"


def _instead(span: Span, rules: PlanRules) -> str:
    axes = [axis for split, axis in rules.splits if split == span]
    return f"; expected {' or '.join(axes)}" if axes else ""


def _order(plan: Plan) -> Iterator[str]:
    """Yield faults of `after`: it must name earlier stages, each once, so that there is no cycle."""
    for index, stage in enumerate(plan.stages):
        for previous in stage.after:
            if not 0 <= previous < len(plan.stages):
                yield f"{_named(index, stage)} is after stage {previous}, which is not there"
            elif previous >= index:
                yield f"{_named(index, stage)} is after stage {previous}, expected earlier stages only: no circles"
        if len(set(stage.after)) < len(stage.after):
            yield f"{_named(index, stage)} is after a stage twice"


def _teams(plan: Plan, rules: PlanRules) -> Iterator[str]:
    """Yield faults of teams: places exist, each once in a stage; in a team of several they are alike, real and local.

    A place on another host computes whole layers only: what shards make is not sent between hosts.
    """
    known = frozenset(rules.places)
    for index, stage in enumerate(plan.stages):
        if not stage.teams or not all(stage.teams):
            yield f"{_named(index, stage)} has no place, expected at least one"
        for place, times in Counter(stage.places).items():
            if place not in known:
                yield f"{_named(index, stage)} is on {place!r}, expected one of {', '.join(rules.places)}"
            if times > 1:
                yield f"{_named(index, stage)} is on {place!r} twice"
        for place in stage.places if stage.split is not None else ():
            if place in rules.far:
                yield (
                    f"{_named(index, stage)} has a part of split layers on {place!r}, "
                    "which is on another host: expected a place of this one"
                )
        devices = {tuple(rules.devices.get(place, ())) for place in stage.places}
        if len(devices) > 1:
            yield f"{_named(index, stage)} is on places with different devices, expected the same: it is placed once"
        for team in stage.teams:
            if len(team) > 1 and not _alike(team, rules):
                yield f"{_named(index, stage)} has the team {'+'.join(team)}, expected places that are alike"
            for place in team if len(team) > 1 else ():
                if place in rules.far:
                    yield f"{_named(index, stage)} has {place!r} in a team, but on another host: expected it alone"
                elif place in rules.single:
                    yield f"{_named(index, stage)} has {place!r} in a team, but it is emulated: expected it alone"


def _alike(places: Collection[str], rules: PlanRules) -> bool:
    return len({rules.kinds.get(place) for place in places}) == 1


def _pools(plan: Plan, rules: PlanRules) -> Iterator[str]:
    """Yield faults of pools: two stages have equal teams or no place in common; teams that stages share are alike.

    Each stage is compared only with the first stages on its places: equality of teams is transitive.
    """
    first_on: dict[str, int] = {}
    for index, stage in enumerate(plan.stages):
        for earlier in dict.fromkeys(first_on.setdefault(place, index) for place in stage.places):
            other = plan.stages[earlier]
            if earlier == index:
                continue
            both = f"{_named(earlier, other)} and {_named(index, stage)}"
            if set(other.teams) != set(stage.teams):
                own = set(stage.places)
                shared = ", ".join(place for place in dict.fromkeys(other.places) if place in own)
                yield (
                    f"{both} share {shared}, but not all of their teams: expected the same teams, or no place in common"
                )
            elif not rules.are_alike(stage):
                yield f"{both} share teams that are not alike: expected places of one kind, or one stage on them"


def _kind(team: Sequence[str], rules: PlanRules) -> Hashable:
    return len(team), tuple(map(rules.kinds.get, team[:1]))


def _cuts(plan: Plan, rules: PlanRules) -> Iterator[str]:
    """Yield faults of cuts: layers that no legal cut separates must be in one stage."""
    stages_of = plan.stages_of(rules.layer_count)
    if rules.legal_cuts is None:
        return
    for cut in range(rules.layer_count - 1):
        if stages_of[cut] != stages_of[cut + 1] and cut not in rules.legal_cuts:
            first, other = (
                _named(carriers[-1], plan.stages[carriers[-1]]) for carriers in (stages_of[cut], stages_of[cut + 1])
            )
            yield (
                f"cut {cut}, between layers {cut} and {cut + 1}, of {first} and {other}, is not legal: "
                "the two layers cannot be separated"
            )


def _needs(plan: Plan, rules: PlanRules) -> Iterator[str]:
    """Yield missing dependencies: a stage must come after the stages that make the tensors it reads."""
    made_by = plan.made_by(rules.layer_count)
    shards_of = {split[-1]: split[:-1] for split in plan.splits if plan.joins(split[-1])}
    ancestors: list[int] = []  # for each stage a bit mask of the stages before it, and itself
    for index, stage in enumerate(plan.stages):
        behind = 1 << index
        for previous in stage.after:
            behind |= ancestors[previous]
        ancestors.append(behind)
        lacking: dict[int, int] = {}
        for layer in stage.layers:
            needed = rules.needs[layer] if rules.needs else {layer - 1} - {-1}
            for maker in sorted(needed):
                if stage.split is not None and _within(maker, stage.split.span) and _within(layer, stage.split.span):
                    continue
                for made in made_by[maker]:
                    if not behind >> made & 1:
                        lacking.setdefault(made, maker)
        for shard in shards_of.get(index, ()):
            if not behind >> shard & 1:
                lacking.setdefault(shard, stage.first)
        for other, maker in lacking.items():
            yield (
                f"{_named(index, stage)} needs what layer {maker} makes, of {_named(other, plan.stages[other])}, "
                f"but is not after it: expected {other} in `after`"
            )


def _batches(plan: Plan, rules: PlanRules) -> Iterator[str]:
    """Yield faults of batch sizes: at most `most_batch`, and 1 where frames cannot be computed together."""
    for index, stage in enumerate(plan.stages):
        if stage.batch > rules.most_batch:
            yield (
                f"{_named(index, stage)} has batch {stage.batch}: expected at most {rules.most_batch}, "
                "which serve --batch sets"
            )
        elif stage.batch > 1 and (reason := _alone(stage, rules)):
            yield f"{_named(index, stage)} has batch {stage.batch}, expected 1: {reason}"


def _alone(stage: Stage, rules: PlanRules) -> str:
    """Why the stage's batch size must be 1; empty if it may be larger."""
    if stage.split is not None:
        return "it has a part of split layers"
    places = (f"place {place} {rules.one_by_one[place]}" for place in stage.leads if place in rules.one_by_one)
    return next(places, "") or (why_not_together(stage.work, rules.mixing, rules.tied) if rules.mixing else "")


def _memory(plan: Plan, rules: PlanRules) -> Iterator[str]:
    """Yield places that lack memory: for all weights, and the most live bytes of a stage. A team uses its lead's."""
    if not rules.memory_bytes:
        return
    weight_bytes: defaultdict[str, int] = defaultdict(int)
    most_live_bytes: defaultdict[str, int] = defaultdict(int)
    for stage in plan.stages:
        weights = _weight_bytes(stage, rules)
        live = max(rules.live_bytes[layer] for layer in stage.layers) * stage.batch
        for place in stage.leads:
            weight_bytes[place] += weights
            most_live_bytes[place] = max(most_live_bytes[place], live)
    for place, weights in weight_bytes.items():
        need_bytes, limit_bytes = weights + most_live_bytes[place], rules.memory_bytes.get(place)
        if limit_bytes is not None and need_bytes > limit_bytes:
            yield f"{place} would need {need_bytes} bytes, and has memory_bytes = {limit_bytes}"


def _weight_bytes(stage: Stage, rules: PlanRules) -> int:
    """Bytes of a stage's weights: a shard has its share of the split layers', the join none of them."""
    split = stage.split
    if split is None:
        return sum(rules.weight_bytes[layer] for layer in stage.layers)
    whole = sum(rules.weight_bytes[layer] for layer in range(split.span[0], split.span[1] + 1))
    if split.joins:
        return sum(rules.weight_bytes[layer] for layer in stage.layers) - whole
    return whole if split.axis == "rows" else -(-whole * split.shares[split.part] // sum(split.shares))


def _listed(numbers: Collection[int]) -> str:
    return ", ".join(map(str, numbers))
