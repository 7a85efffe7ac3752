"""`shisha-rt layers`: the layers of a model, which pipelines are made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from shisha_rt.cli.options import Dims, Json, Layers, Model, Shapes, parse_sizes
from shisha_rt.cli.progress import progress

if TYPE_CHECKING:
    from shisha_rt.model.index import Form
    from shisha_rt.model.layers import Layer

_KEYS: Final = ("index", "name", "op", "weight", "macs", "weight_bytes", "in_bytes", "out_bytes")
_BAR_WIDTH: Final = 8


def layers(
    model: Model,
    kind: Layers = "heavy",
    dim: Dims = None,
    shape: Shapes = None,
    as_json: Json = False,
) -> None:
    """List the layers of MODEL with their weights and sizes.

    A layer is one heavy operator (Conv, ConvTranspose, Gemm, MatMul) with the light ones that need it and
    no later one; or, where the places of a machine have devices, each operator (--layers operators). Its
    weight is Eq. 1 of Shisha; macs are multiply-adds; in and out are the bytes of all tensors that live at
    the cut before and after it. Last, which layers may compute several frames in one run (see serve --batch), and
    why others may not. Where the engine has compiled MODEL before, it says in which form.

    \b
    Examples:
      shisha-rt layers zoo:squeezenet
      shisha-rt layers detector.onnx --dim batch=1 --dim width=640
      shisha-rt layers zoo:inception_v1 --layers operators
      shisha-rt layers zoo:resnet50 --json | jq '.layers[].weight'
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.measure.compile import compiled_form
    from shisha_rt.model.batches import batches_in_words, follow_batch, layers_in_batches
    from shisha_rt.model.free_batch import integers_of
    from shisha_rt.model.layers import group_layers, layer_of_operator
    from shisha_rt.model.reader.onnx_reader import read_model
    from shisha_rt.model.zoo import resolve_model

    read = read_model(resolve_model(model, progress), parse_sizes(dim, shape))
    layers_read = group_layers(read.graph, kind)
    form = compiled_form(read) if kind == "heavy" else None
    followed = follow_batch(read.graph, integers_of(read.proto.graph))
    mixing = layers_in_batches(read.graph, layer_of_operator(layers_read), len(layers_read), followed).mixing
    if as_json:
        rows = [{key: getattr(layer, key) for key in _KEYS} for layer in layers_read]
        layers_object: dict[str, object] = {"model": read.name, "layers": rows}
        layers_object["one_frame_at_a_time"] = one_frame_at_a_time(mixing)
        print(json.dumps(layers_object | ({} if form is None else {"form": form})))
    else:
        _print_table(read.name, layers_read)
        print(f"batches: {batches_in_words(mixing)}")
        if form is not None:
            print(f"compiled form: {form_in_words(form)}")


def one_frame_at_a_time(mixing: Sequence[str]) -> list[dict[str, object]]:
    """The layers that may not compute several frames in one run, and why."""
    return [{"layer": layer, "reason": reason} for layer, reason in enumerate(mixing) if reason]


def form_in_words(form: Form) -> str:
    from shisha_rt.model.index import FORM_EFFECT

    return f"{form} ({FORM_EFFECT[form]})"


def _print_table(model: str, layers_read: Sequence[Layer]) -> None:
    from shisha_rt.show.lines import counted, plain_console, plain_table

    weight = sum(layer.weight for layer in layers_read)
    heaviest = max(layer.weight for layer in layers_read)
    totals = {
        "name": "total",
        "weight": short(weight),
        "macs": short(sum(layer.macs for layer in layers_read)),
        "params": short(sum(layer.weight_bytes for layer in layers_read), "B"),
    }
    table = plain_table(f"{model}: {counted(len(layers_read), 'layer')}", show_footer=True)
    for head in ("#", "name", "op", "weight", "share", "macs", "params", "in", "out"):
        is_text = head in ("name", "op")  # which gives way in a narrow terminal; numbers do not
        justify: Literal["left", "right"] = "left" if is_text or head == "share" else "right"
        table.add_column(head, totals.get(head, ""), justify=justify, no_wrap=not is_text, overflow="ellipsis")
    for layer in layers_read:
        table.add_row(
            str(layer.index),
            layer.name,
            layer.op,
            short(layer.weight),
            share_bar(layer.weight, weight, heaviest),
            short(layer.macs),
            short(layer.weight_bytes, "B"),
            short(layer.in_bytes, "B"),
            short(layer.out_bytes, "B"),
        )
    plain_console().print(table)


def short(count: int, unit: str = "") -> str:
    """Three digits and a decimal prefix: 86_704_128 as 86.7 M."""
    value = float(count)
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5 or prefix == "T":
            break
        value /= 1000
    digits = f"{value:.0f}" if count < 1000 or value >= 99.95 else f"{value:.3g}"
    return f"{digits} {prefix}{unit}".rstrip()


def share_bar(part: float, whole: float, longest: float) -> str:
    """`part` of `whole` in percent, with a bar that is full for `longest`."""
    filled = round(_BAR_WIDTH * part / longest) if longest else 0
    percent = 100 * part / whole if whole else 0.0
    return f"{percent:4.1f}% {'█' * filled}"
