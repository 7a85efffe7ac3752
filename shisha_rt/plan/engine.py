"""Engines that a stage can be computed by, as plans, messages and options name them. Pure."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

EngineName: TypeAlias = Literal["onnxruntime", "openvino"]
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)
AnyEngine: TypeAlias = Literal["auto", "onnxruntime", "openvino"]
ANY_ENGINES: Final[tuple[AnyEngine, ...]] = get_args(AnyEngine)
"""What a daemon may be asked for; `auto`: the one that is fastest here, as measured."""

StageEngine: TypeAlias = Literal["onnxruntime", "onnxruntime-spin", "openvino"]
"""How a stage is computed. `onnxruntime-spin`: by ONNX Runtime, with threads that spin for a bounded time while they
wait for each other."""
STAGE_ENGINES: Final[tuple[StageEngine, ...]] = get_args(StageEngine)
DEFAULT_ENGINE: Final[StageEngine] = "onnxruntime"
"""The only engine that computes stages of a cut network; with any other, a stage is the whole network."""
