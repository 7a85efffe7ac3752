"""Engines that a stage can be computed by, as plans, messages and options name them. Pure."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

EngineName: TypeAlias = Literal["onnxruntime", "openvino", "openvino_bf16"]
"""What computes a network. `openvino_bf16`: OpenVINO in bfloat16, which changes results beyond rounding."""
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)
AnyEngine: TypeAlias = Literal["auto", "onnxruntime", "openvino"]
ANY_ENGINES: Final[tuple[AnyEngine, ...]] = get_args(AnyEngine)
"""What a daemon may be asked for; `auto`: the one that is fastest here, as measured."""

StageEngine: TypeAlias = Literal["onnxruntime", "onnxruntime-spin", "openvino", "openvino_bf16"]
"""How a stage is computed. `onnxruntime-spin`: by threads that spin for a bounded time while they wait."""
STAGE_ENGINES: Final[tuple[StageEngine, ...]] = get_args(StageEngine)
DEFAULT_ENGINE: Final[StageEngine] = "onnxruntime"
"""The only engine that computes stages of a cut network; with any other, a stage is the whole network."""


def is_openvino(engine: StageEngine) -> bool:
    """Whether OpenVINO computes the stage: the whole network, with weights of its own in each worker."""
    return engine in ("openvino", "openvino_bf16")


def without_spin(engine: StageEngine) -> EngineName:
    """The engine, however its threads wait."""
    return "onnxruntime" if engine == "onnxruntime-spin" else engine


def is_exact(engine: StageEngine) -> bool:
    """Whether the engine computes in the network's own precision, so that it differs from others by rounding alone."""
    return engine != "openvino_bf16"
