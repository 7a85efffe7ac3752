"""How a worker builds an ordered stage: placed on devices, or else as a cut of the engine's form of the model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from shisha_rt.messages.worker import Prepare, WorkerConfig
from shisha_rt.model.index import ModelIndex
from shisha_rt.plan.engine import is_openvino, without_spin
from shisha_rt.process.arena import Arena
from stages.built.batched import Together, batched_stage
from stages.built.stage import BuiltStage
from stages.engines.onnxruntime.segment import OptimisedModel
from stages.engines.session import EngineSession, Threads


def _threads_of(order: Prepare, own: int) -> Threads:
    """The threads of the order's team of several places, or else as many as the place's `own`."""
    return Threads(order.threads or own, order.cores, spin=order.engine == "onnxruntime-spin")


class CompiledStages:
    """Stages on one engine. `indexes`: of each shape. `allowed`: cores that teams of the worker's place may use."""

    def __init__(self, config: WorkerConfig, indexes: Sequence[ModelIndex], allowed: Collection[int]) -> None:
        self._config = config
        self._indexes = indexes
        self._allowed = allowed
        self._shapes = [
            OptimisedModel(Path(folder), index) for folder, index in zip(config.engine_folders, indexes, strict=True)
        ]

    def build(self, order: Prepare) -> BuiltStage:
        threads = _threads_of(order, self._config.threads)
        if is_openvino(order.engine):
            return self._on_openvino(order, threads)
        if order.split is not None:
            from stages.engines.onnxruntime.split_segment import split_segment

            folder = Path(self._config.engine_folders[0])
            return BuiltStage([split_segment(folder, self._indexes[0], order.work, order.split, threads)])
        segments = [shape.segment(order.work, threads) for shape in self._shapes]

        def together() -> Iterator[Together]:
            for shape, index, segment in zip(self._shapes, self._indexes, segments, strict=True):
                many = shape.segment(order.work, threads, index.batch_axes)
                yield Together(segment, index.batch_axes, dict.fromkeys(range(2, order.batch + 1), many))

        return BuiltStage(segments) if order.batch == 1 else batched_stage(segments, together)

    def _on_openvino(self, order: Prepare, threads: Threads) -> BuiltStage:
        """The whole network, first compared with ONNX Runtime; raises ValueError if their answers differ."""
        from stages.engines.openvino.whole import WholeOnOpenVino, load_for_all_of

        load_for_all_of(self._allowed)
        networks, engine = [], without_spin(order.engine)
        for folder, index, shape in zip(self._config.model_folders, self._indexes, self._shapes, strict=True):
            usual = shape.segment(((0, index.layer_count - 1),))
            networks.append(WholeOnOpenVino(Path(folder), index, threads, usual.weight_bytes, engine))
            networks[-1].compare(usual)

        def together() -> Iterator[Together]:
            for network, index in zip(networks, self._indexes, strict=True):
                yield Together(network, index.batch_axes, network.of_frames(order.batch), network.precision)

        return BuiltStage(networks) if order.batch == 1 else batched_stage(networks, together)


class PlacedStages:
    """Stages on the place's devices. What only such places need is imported here: it takes as long as all else."""

    def __init__(self, config: WorkerConfig, index: ModelIndex, arena: Arena) -> None:
        from stages.built.clean_model import CleanModel
        from stages.built.placed import PlacedModel

        self._threads = config.threads
        self._index = index
        self._placed = PlacedModel(
            CleanModel.read(Path(config.model_folders[0]), config.scales),
            index,
            config.devices,
            config.threads,
            lambda device: arena.device_speed(config.place_index, device),
        )

    def build(self, order: Prepare) -> BuiltStage:
        threads = _threads_of(order, self._threads)
        if order.split is not None:
            return BuiltStage([self._placed.split_stage(order.work, order.split, order.placement[0], threads)])
        single: EngineSession = self._placed.stage(order.work, order.placement, threads)

        def together() -> Iterator[Together]:
            """For full batches only: each further size would hold weights of its own."""
            many = self._placed.of_frames(order.batch).stage(order.work, order.placement, threads)
            yield Together(single, self._index.batch_axes, {order.batch: many})

        return BuiltStage([single]) if order.batch == 1 else batched_stage([single], together)
