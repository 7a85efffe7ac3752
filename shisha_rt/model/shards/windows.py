"""Rows of convolutions and poolings: which input rows some output rows need, and with what padding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shisha_rt.model.graph import Graph, Operator


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """One spatial dimension. `reach`: positions that a window spans, dilation included; `before`: padding in front."""

    size_in: int
    size_out: int
    reach: int
    stride: int
    before: int

    @property
    def after(self) -> int:
        """Padding at the end that the last window needs: at most what the operator says."""
        return max(0, (self.size_out - 1) * self.stride + self.reach - self.size_in - self.before)

    def rows(self, first: int, end: int) -> tuple[int, int, int, int]:
        """For output rows from `first` to before `end`: first input row, end, padding before and after."""
        start = first * self.stride - self.before
        stop = (end - 1) * self.stride + self.reach - self.before
        return max(start, 0), min(stop, self.size_in), max(-start, 0), max(stop - self.size_in, 0)


def sliding_windows(graph: Graph, operator: Operator) -> tuple[SlidingWindow, ...] | None:
    """One for each spatial dimension of a convolution or a pooling; None if a window could be all padding."""
    image = graph.tensor(operator.inputs[0]).shape[2:]
    made = graph.tensor(operator.outputs[0]).shape[2:]
    ones = (1,) * len(image)
    attributes = operator.attributes
    kernel = _list(attributes, "kernel_shape") or graph.tensor(operator.inputs[1]).shape[2:]
    strides, dilations = _list(attributes, "strides") or ones, _list(attributes, "dilations") or ones
    pads = _list(attributes, "pads") or (0,) * (2 * len(image))
    how = operator.texts.get("auto_pad", "NOTSET")
    ranges = []
    for axis, (size_in, size_out) in enumerate(zip(image, made, strict=True)):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        missing = max(0, (size_out - 1) * strides[axis] + reach - size_in)
        before = {"NOTSET": pads[axis], "VALID": 0, "SAME_UPPER": missing // 2}.get(how, missing - missing // 2)
        window = SlidingWindow(size_in, size_out, reach, strides[axis], before)
        if window.before >= reach or window.after >= reach:
            return None
        ranges.append(window)
    return tuple(ranges)


def _list(attributes: Mapping[str, int | tuple[int, ...]], name: str) -> tuple[int, ...]:
    attribute = attributes.get(name, ())
    return attribute if isinstance(attribute, tuple) else (attribute,)
