"""`shisha-rt layers`: what a pipeline has to move about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shisha_rt.cli.options import Dims, Json, Layers, parse_dims, progress

if TYPE_CHECKING:
    from shisha_rt.fabric.model_index import Form
    from shisha_rt.graph.layers import Layer

_KEYS: Final = ("index", "name", "op", "weight", "macs", "weight_bytes", "in_bytes", "out_bytes")
_BAR_WIDTH: Final = 8


def layers(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A path to an ONNX file, or zoo:NAME.")],
    kind: Layers = "heavy",
    dim: Dims = None,
    as_json: Json = False,
) -> None:
    """List the layers of MODEL with their weights and sizes.

    A layer is one heavy operator (Conv, ConvTranspose, Gemm, MatMul) with the light ones that need it and
    no later one; or, where the places of a machine have devices, each operator (--layers operators). Its
    weight is Eq. 1 of Shisha; macs are multiply-adds; in and out are the bytes of all tensors that live at
    the cut before and after it. Where the engine has compiled MODEL before, it says in which form.

    \b
    Examples:
      shisha-rt layers zoo:squeezenet
      shisha-rt layers detector.onnx --dim batch=1 --dim width=640
      shisha-rt layers zoo:inception_v1 --layers operators
      shisha-rt layers zoo:resnet50 --json | jq '.layers[].weight'
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.graph.layers import group_layers
    from shisha_rt.graph.reader.onnx_reader import read_model
    from shisha_rt.graph.zoo import resolve_model
    from shisha_rt.ready.compile import compiled_form

    read = read_model(resolve_model(model, progress), parse_dims(dim))
    found = group_layers(read.graph, kind)
    form = compiled_form(read) if kind == "heavy" else None
    if as_json:
        rows = [{key: getattr(layer, key) for key in _KEYS} for layer in found]
        print(json.dumps({"model": read.name, "layers": rows} | ({} if form is None else {"form": form})))
    else:
        _print_table(read.name, found)
        if form is not None:
            print(f"compiled: {form_in_words(form)}")


def form_in_words(form: Form) -> str:
    """Of a compiled model: what it is called, and what it costs."""
    from shisha_rt.fabric.model_index import FORM_COST

    return f"{form} ({FORM_COST[form]})" if FORM_COST[form] else form


def _print_table(model: str, found: Sequence[Layer]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    weight = sum(layer.weight for layer in found)
    heaviest = max(layer.weight for layer in found)
    table = Table(
        title=f"{model}: {len(found)} layers",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_footer=True,
    )
    table.add_column("#", justify="right")
    # Names may be long paths: of all columns only this one gives way in a narrow terminal.
    table.add_column("name", "total", overflow="ellipsis", no_wrap=True, min_width=5)
    table.add_column("op", no_wrap=True)
    table.add_column("weight", short(weight), justify="right", no_wrap=True)
    table.add_column("share", no_wrap=True)
    table.add_column("macs", short(sum(layer.macs for layer in found)), justify="right", no_wrap=True)
    table.add_column("weights", short(sum(layer.weight_bytes for layer in found), "B"), justify="right", no_wrap=True)
    table.add_column("in", justify="right", no_wrap=True)
    table.add_column("out", justify="right", no_wrap=True)
    for layer in found:
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
    Console(highlight=False).print(table)


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
