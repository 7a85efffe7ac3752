"""Real networks to run without a download: `zoo:resnet50`.

Their topologies come from the `onnx` package, with constant weights, and from `topologies`. On first use they get
weights that make their answers depend on their input. A process of the data plane makes these (this process never runs
a model), and they are stored in the user's cache. Three more have real, trained weights: networks that read text, from
the package that the extra `real` installs. That package is never imported, as its own dependencies need system
libraries. Shell.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import onnx

from shisha_rt.cache import cache_folder, publish
from shisha_rt.checked import did_you_mean
from shisha_rt.errors import BadInput, Error
from shisha_rt.extras import pip_install
from shisha_rt.model.default_dims import set_default_dims
from shisha_rt.model.topologies.bert import bert, roberta
from shisha_rt.model.topologies.darknet import darknet53, yolov3
from shisha_rt.model.topologies.gpt2 import gpt2
from shisha_rt.model.topologies.resnet import resnet18, resnext50
from shisha_rt.model.topologies.synthnet import synthnet
from shisha_rt.model.topologies.vgg import vgg16
from shisha_rt.process.job import JobFailed, run_job

SHIPPED: Final = (
    *("alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"),
    *("shufflenet", "squeezenet", "vgg19", "zfnet512"),
)
"""Networks of the `onnx` package."""
TOPOLOGIES: Final[Mapping[str, Callable[[], onnx.ModelProto]]] = {
    build.__name__: build for build in (bert, darknet53, gpt2, resnet18, resnext50, roberta, synthnet, vgg16, yolov3)
}
NAMES: Final = tuple(sorted((*SHIPPED, *TOPOLOGIES)))
"""Networks with made-up weights."""
TRAINED: Final[Mapping[str, tuple[str, Mapping[str, int]]]] = {
    "text_classifier": ("ch_ppocr_mobile_v2.0_cls_mobile.onnx", {"height": 48, "width": 192}),
    "text_detector": ("ch_PP-OCRv4_det_mobile.onnx", {"height": 320, "width": 320}),
    "text_recogniser": ("ch_PP-OCRv4_rec_mobile.onnx", {"height": 48, "width": 320}),
}
"""For each trained network, its file in the package's `models` and its default sizes."""
_PACKAGE: Final = "rapidocr"
_PREFIX: Final = "zoo:"
_WEIGHTS_VERSION: Final = "v1"  # raise it when the weights would come out differently


def resolve_model(text: str, on_progress: Callable[[str], None] | None = None) -> Path:
    """The file that a MODEL argument means: `zoo:NAME`, or a path. Raises BadInput if there is none."""
    if text.startswith(_PREFIX):
        return zoo_path(text.removeprefix(_PREFIX), on_progress)
    path, expected = Path(text), "expected an ONNX file, or zoo:NAME"
    try:
        if path.exists() and not path.is_dir():
            return path
        missing = "is a folder" if path.is_dir() else "no such file"
    except OSError as error:  # a folder on the way may not be entered, or a name is too long
        raise BadInput(f"{text}: cannot be read: {error.strerror}; {expected}", Error.MODEL_UNREADABLE) from error
    raise BadInput(f"{text}: {missing}; {expected}{_meant(text)}", Error.MODEL_UNREADABLE)


def check_named(text: str) -> None:
    """Raise BadInput, as `resolve_model` does, if a MODEL argument means nothing; no network is built."""
    if text.startswith(_PREFIX):
        _trained(text.removeprefix(_PREFIX))
    else:
        resolve_model(text)


def _meant(text: str) -> str:
    """A suggestion what a path or name that does not exist may have meant, as the end of a message; may be empty."""
    path = Path(text)
    names = [f"{_PREFIX}{name}" for name in (*NAMES, *TRAINED)]
    known = {_plain(name): name for name in names}
    if not text.startswith(_PREFIX) and path.parent.is_dir():
        known |= {_plain(file.stem): str(file) for file in sorted(path.parent.glob("*.onnx"))}
    return did_you_mean(_plain(path.stem), known)


def _plain(name: str) -> str:
    return "".join(character for character in name.removeprefix(_PREFIX).lower() if character.isalnum())


def zoo_path(name: str, on_progress: Callable[[str], None] | None = None) -> Path:
    """The network's file, built first if need be (seconds; VGG-19 takes the longest and 575 MB).

    Raises BadInput for an unknown name, and for a trained network without its package; Failure if it cannot be built.
    """
    trained = _trained(name)

    def build(folder: Path) -> None:
        if on_progress:
            on_progress(f"building {_PREFIX}{name} (once)")
        if trained is None:
            _build(_topology(name), folder / f"{name}.onnx")
        else:
            onnx.save(_with_named_axes(onnx.load(trained[0]), TRAINED[name][1]), folder / f"{name}.onnx")

    folder = name if trained is None else f"{name}-{trained[1]}"
    return publish(cache_folder() / "zoo" / _WEIGHTS_VERSION / folder, build) / f"{name}.onnx"


def _trained(name: str) -> tuple[Path, str] | None:
    """A trained network's file in its package, and the package's version; None for one with made-up weights."""
    if name in NAMES:
        return None
    if name not in TRAINED:
        expected = f"expected one of {', '.join(sorted((*NAMES, *TRAINED)))}"
        raise BadInput(
            f"{_PREFIX}{name}: no such network; {expected}{_meant(f'{_PREFIX}{name}')}", Error.UNKNOWN_NETWORK
        )
    file, _ = TRAINED[name]
    try:
        package = importlib.metadata.distribution(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise BadInput(
            f"{_PREFIX}{name}: its weights are not installed, expected the extra 'real': {pip_install('real')}",
            Error.EXTRA_MISSING,
        ) from None
    path = Path(str(package.locate_file(f"{_PACKAGE}/models/{file}")))
    if not path.is_file():
        raise BadInput(
            f"{_PREFIX}{name}: {_PACKAGE} {package.version} has no {file}, expected the version of the extra 'real': "
            f"{pip_install('real')}",
            Error.EXTRA_MISSING,
        )
    return path, package.version


def _with_named_axes(model: onnx.ModelProto, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """Name the image's open axes, which are published as `?` or after a converter, and suggest sizes."""
    (image,) = model.graph.input
    for axis, name in zip(image.type.tensor_type.shape.dim, ("batch", "channels", "height", "width"), strict=True):
        if axis.dim_value < 1:
            axis.dim_param = name
    set_default_dims(model, sizes)
    return model


def _topology(name: str) -> bytes:
    if name in TOPOLOGIES:
        return bytes(TOPOLOGIES[name]().SerializeToString())
    file = f"light_{'bvlc_' if name == 'alexnet' else ''}{name}.onnx"
    return (Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / file).read_bytes()


def _build(topology: bytes, target: Path) -> None:
    """Raises OSError if the file cannot be written, as on a full disk."""
    failed = f"{_PREFIX}{target.stem}: could not be built"
    try:
        run_job("stages.jobs.zoo_weights", str(target), failed=failed, given=topology)
    except JobFailed as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno)) from None
