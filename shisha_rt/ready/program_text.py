"""The text of a program that runs a schedule of partitions: the schedule, a function for each place, and threads.

It reads as PartitionTuner's Figure 5 does, and is formatted as ruff and black would. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from shisha_rt.graph.datatypes import NUMPY_OF
from shisha_rt.graph.graph import Tensor
from shisha_rt.machine.device import Device

MARK: Final = "# A program of shisha-rt's, made by `shisha-rt plan --program`."
"""The first line of each."""

_WIDTH: Final = 88
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Processor:
    """A place, on `cores`, of which its device uses `threads`. `emulated`: it takes longer than this host would."""

    name: str
    cores: tuple[int, ...]
    threads: int
    speed: float
    device: Device
    emulated: bool


@dataclass(frozen=True, slots=True)
class Partition:
    """`files` has one for each of its runs, `operators` the names of the first and the last of each.

    It begins when those named `after`, of other places, have ended, and may run while those `beside` do. `told_s`: the
    prediction, which a described device is made to take.
    """

    name: str
    place: str
    files: tuple[str, ...]
    after: tuple[str, ...]
    beside: tuple[str, ...]
    operators: tuple[tuple[str, str], ...]
    told_s: float


@dataclass(frozen=True, slots=True)
class Program:
    """`partitions` in the plan's order. `predicted_s`: of a frame by itself, without hand-overs."""

    title: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    processors: tuple[Processor, ...]
    partitions: tuple[Partition, ...]
    time_scale: float
    predicted_s: float

    @property
    def emulated(self) -> bool:
        return any(its.emulated for its in self.processors)


def program_text(program: Program) -> str:
    """Python that needs numpy, the engines, and of this project `shisha_rt.emulated` where something is emulated."""
    functions = _function_names(program)
    engines = {_engine(its) for its in program.processors}
    blocks = [
        _head(program, engines),
        *(_function(program, its, functions[its.name]) for its in program.processors),
        *(block for needed, block in _LOADERS if engines & needed),
        _FRAME,
        _PLACE,
        _places(program, functions),
        _MAIN,
    ]
    text = "\n\n\n".join(block.strip("\n") for block in blocks) + "\n"
    return "".join(_chosen(text.splitlines(keepends=True), emulated=program.emulated))


def _chosen(lines: Iterable[str], *, emulated: bool) -> Iterator[str]:
    """Without the lines that are for the other kind of machine."""
    kept, dropped = (_EMULATED, _REAL) if emulated else (_REAL, _EMULATED)
    return (line.replace(kept, "") for line in lines if not line.endswith(f"{dropped}\n"))


def _engine(processor: Processor) -> str:
    """What of the text below loads its files. Integers of 8 bits are ONNX Runtime's, whatever the device's engine."""
    if processor.device.precision == "int8":
        return "as_it_stands"
    if processor.device.engine == "openvino" and processor.device.precision == "bf16":
        return "openvino_bf16"
    return processor.device.engine


def _head(program: Program, engines: Iterable[str]) -> str:
    imported = sorted({"openvino" if its.startswith("openvino") else "onnxruntime" for its in engines})
    lines = [MARK, "#", f"# {_plain(program.title)}.", *_schedule(program), '"""' + _USE.strip(), '"""', ""]
    lines += [f"import {name}" for name in ("functools", "os", "queue", "sys", "threading", "time")]
    lines += ["from pathlib import Path", "", "import numpy as np", *(f"import {name}" for name in imported)]
    if program.emulated:
        lines += ["", "from shisha_rt.emulated import EmulatedTime"]
    lines += ["", 'PARTS = Path(__file__).with_suffix(".parts")', "INPUTS = {"]
    for tensor in program.inputs:
        dtype = _quoted(str(NUMPY_OF[tensor.datatype]))
        lines.append(f"    {_quoted(tensor.name)}: ({tensor.shape!r}, {dtype}),")
    lines += ["}", "OUTPUTS = [", *(f"    {_quoted(name)}," for name in program.outputs), "]"]
    lines.append(f"PREDICTED_S = {_number(program.predicted_s)}  # without what handing on takes")
    if program.emulated:
        lines.append(f"TIME_SCALE = {program.time_scale!r}  # by which all times are stretched")
    return "\n".join(lines)


def _schedule(program: Program) -> Iterator[str]:
    """A line for each partition, those that run beside others marked."""
    device_of = {its.name: its for its in program.processors}
    rows = []
    for its in program.partitions:
        processor = device_of[its.place]
        where = f"{processor.name}: {processor.device.name}"
        operators = ", ".join(first if first == last else f"{first} to {last}" for first, last in its.operators)
        ms = f"{its.told_s * 1e3:.3f} ms"
        rows.append((its.name, "|" if its.beside else " ", _plain(where), ms, _plain(operators), _beside(its)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    yield f"# The schedule: {program.predicted_s * 1e3:.4g} ms predicted for a frame, without what handing on takes;"
    yield "# each place runs its partitions in this order, those marked | while others run."
    yield "#"
    for name, mark, where, ms, operators, beside in rows:
        line = f"#   {name:{widths[0]}} {mark} {where:{widths[2]}}  {ms:>{widths[3]}}  {operators}{beside}"
        yield line.rstrip()


def _beside(partition: Partition) -> str:
    if not partition.beside:
        return ""
    named, more = partition.beside[:_MOST_NAMED], len(partition.beside) - _MOST_NAMED
    return f" (beside {', '.join(named)}{f' and {more} more' if more > 0 else ''})"


def _function_names(program: Program) -> dict[str, str]:
    found: dict[str, str] = {}
    for its in program.processors:
        name = "on_" + re.sub(r"\W", "_", its.name, flags=re.ASCII)
        found[its.name] = name if name not in found.values() else f"{name}_{len(found)}"
    return found


def _function(program: Program, processor: Processor, name: str) -> str:
    device = processor.device
    emulated = ", emulated" if processor.emulated else ""
    lines = [f"def {name}(place):", f"    # {_plain(processor.name)}: {_plain(device.name)}{emulated}"]
    own = [its for its in program.partitions if its.place == processor.name]
    for its in own:
        told = [f"takes_s={_number(its.told_s)}"] if device.described else []
        files = [_quoted(file) for file in its.files]
        lines += _call(f"    {its.name} = place.load", [_quoted(its.name), *files, *told])
    lines.append("    for frame in place.frames():")
    for its in own:
        after = [f"after=[{', '.join(map(_quoted, its.after))}]"] if its.after else []
        lines += _call(f"        {its.name}", ["frame", *after])
    return "\n".join(lines)


def _places(program: Program, functions: dict[str, str]) -> str:
    lines = ["@functools.cache", "def places():", '    """Their threads, once each has loaded its partitions."""']
    lines.append("    found = [")
    for its in program.processors:
        arguments = [functions[its.name], f"load_{_engine(its)}", f"cores={list(its.cores)}", f"threads={its.threads}"]
        if its.speed != 1:
            arguments.append(f"speed={its.speed!r}")
        *first, last = _call("        Place", arguments)
        lines += [*first, f"{last},"]
    return "\n".join((*lines, "    ]", _STARTED.strip("\n")))


def _call(function: str, arguments: list[str]) -> list[str]:
    """In one line, or with a line for each argument."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) < _WIDTH:
        return [line]
    indent = " " * (len(function) - len(function.lstrip()))
    return [f"{function}(", *(f"{indent}    {argument}," for argument in arguments), f"{indent})"]


def _quoted(text: str) -> str:
    found = repr(text)
    return found if '"' in found else f'"{found[1:-1]}"'


def _number(value: float) -> str:
    return f"{value:.9g}"


def _plain(text: str) -> str:
    """For a comment, which a name must not end."""
    return "".join(character if character.isprintable() else "?" for character in text)


# What lines of the text below end with that are for one kind of machine alone.
_EMULATED: Final = "  #+"
_REAL: Final = "  #-"

_USE: Final = """
Run it to time frames of noise, or with IN.npz OUT.npz for frames of a file.

IN.npz has an array for each input by its name: one frame, or (frames, *shape).
As a module it has `infer`.
"""

_LOAD_ORT: Final = '''
def load_onnxruntime(file, threads, level="ORT_ENABLE_ALL"):
    """A function that computes a frame's tensors from others of its tensors."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = getattr(levels, level)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
    inputs = [tensor.name for tensor in session.get_inputs()]
    outputs = [tensor.name for tensor in session.get_outputs()]

    def compute(tensors):
        made = session.run(outputs, {name: tensors[name] for name in inputs})
        tensors.update(zip(outputs, made))

    return compute
'''

_LOAD_AS_IT_STANDS: Final = '''
def load_as_it_stands(file, threads):
    """The same for integers of 8 bits, of which nothing is left to the optimiser."""
    return load_onnxruntime(file, threads, "ORT_DISABLE_ALL")
'''

_LOAD_OPENVINO: Final = '''
@functools.cache
def openvino_core():
    return openvino.Core()


def load_openvino(file, threads, precision="f32"):
    """A function that computes a frame's tensors from others of its tensors."""
    settings = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
    }
    compiled = openvino_core().compile_model(file, "CPU", settings)
    request = compiled.create_infer_request()

    def compute(tensors):
        for port in compiled.inputs:
            name = next(name for name in port.names if name in tensors)
            request.set_tensor(port, openvino.Tensor(tensors[name], shared_memory=True))
        request.infer()
        for port in compiled.outputs:
            made = request.get_tensor(port).data.copy()
            tensors.update(dict.fromkeys(port.names, made))

    return compute
'''

_LOAD_OPENVINO_BF16: Final = """
def load_openvino_bf16(file, threads):
    return load_openvino(file, threads, "bf16")
"""

_LOADERS: Final = (
    ({"onnxruntime", "as_it_stands"}, _LOAD_ORT),
    ({"as_it_stands"}, _LOAD_AS_IT_STANDS),
    ({"openvino", "openvino_bf16"}, _LOAD_OPENVINO),
    ({"openvino_bf16"}, _LOAD_OPENVINO_BF16),
)

_FRAME: Final = '''
class Frame:
    """One frame: its tensors so far, and which partitions are done."""

    def __init__(self, inputs, partitions):
        self.tensors = inputs
        self.done = {name: threading.Event() for name in partitions}
        self.error = None
'''

_PLACE: Final = '''
class Partition:
    """Called for a frame it waits for others, computes, and says that it is done.

    What goes wrong is the frame's error, and then nothing more of it is computed.
    """

    def __init__(self, name, runs):  #-
    def __init__(self, name, runs, clock, takes_s):  #+
        self.name = name
        self.runs = runs
        self.clock = clock  #+
        self.takes_s = takes_s  #+

    def __call__(self, frame, after=()):
        try:
            for name in after:
                frame.done[name].wait()  #-
                if not frame.done[name].is_set():  #+
                    frame.done[name].wait()  #+
                    self.clock.begin()  #+
            if frame.error is None:
                self.compute(frame.tensors)  #-
                self.clock.run(lambda: self.compute(frame.tensors), self.takes_s)  #+
        except BaseException as error:  # noqa: BLE001 (infer raises it)
            frame.error = error
        finally:
            frame.done[self.name].set()

    def compute(self, tensors):
        for run in self.runs:
            run(tensors)


class Place(threading.Thread):
    """The thread that runs a place's partitions, on the place's cores."""

    def __init__(self, work, load, cores, threads):  #-
    def __init__(self, work, load, cores, threads, speed=1.0):  #+
        super().__init__(daemon=True)
        self.work = work
        self.load_file = load
        self.cores = cores
        self.threads = threads
        self.speed = speed  #+
        self.frames_to_run = queue.SimpleQueue()
        self.partitions = []
        self.loaded = threading.Event()
        self.error = None

    def run(self):
        try:
            # This thread alone, and those that its engine starts.
            os.sched_setaffinity(0, self.cores)
            self.clock = EmulatedTime(TIME_SCALE, self.speed, self.threads)  #+
            self.work(self)
        except BaseException as error:  # noqa: BLE001 (places raises it)
            self.error = error
        finally:
            self.loaded.set()

    def load(self, name, *files):  #-
    def load(self, name, *files, takes_s=None):  #+
        self.partitions.append(name)
        runs = [self.load_file(str(PARTS / file), self.threads) for file in files]
        return Partition(name, runs)  #-
        return Partition(name, runs, self.clock, takes_s)  #+

    def frames(self):
        self.loaded.set()
        while True:
            frame = self.frames_to_run.get()  #+
            self.clock.begin()  #+
            yield frame  #+
            yield self.frames_to_run.get()  #-
'''

_STARTED: Final = """
    for place in found:
        place.start()
    for place in found:
        place.loaded.wait()
        if place.error is not None:
            raise place.error
    return found
"""

_MAIN: Final = '''
one_at_a_time = threading.Lock()


def infer(inputs):
    """The outputs by name, of inputs by name. Raises ValueError where those do not fit."""
    for name, (shape, dtype) in INPUTS.items():
        found = np.asarray(inputs.get(name))
        if found.shape != shape or found.dtype != dtype:
            raise ValueError(f"input {name!r}: expected {dtype} of the shape {shape}")
    given = {name: np.ascontiguousarray(inputs[name]) for name in INPUTS}
    with one_at_a_time:
        partitions = [name for place in places() for name in place.partitions]
        frame = Frame(given, partitions)
        for place in places():
            place.frames_to_run.put(frame)
        for done in frame.done.values():
            done.wait()
    if frame.error is not None:
        raise frame.error
    return {name: frame.tensors[name] for name in OUTPUTS}


def noise(shape, dtype, generator):
    """Whole numbers may be indices: those are 0."""
    if np.dtype(dtype).kind != "f":
        return np.zeros(shape, dtype)
    return generator.standard_normal(shape).astype(dtype)


def time_noise(warm=3, timed=20):
    generator = np.random.default_rng(0)
    frame = {name: noise(*its, generator) for name, its in INPUTS.items()}
    for _ in range(warm):
        infer(frame)
    overran = sum(place.clock.overran for place in places())  #+
    taken_s = []
    for _ in range(timed):
        start_s = time.perf_counter()
        infer(frame)
        taken_s.append(time.perf_counter() - start_s)
    median_s = float(np.median(taken_s))  #-
    median_s = float(np.median(taken_s)) / TIME_SCALE  #+
    print(f"{median_s * 1e3:.4g} ms a frame (median of {timed}), ", end="")
    print(f"{PREDICTED_S * 1e3:.4g} ms predicted without handing on")  #-
    print(f"{PREDICTED_S * 1e3:.4g} ms predicted without handing on; emulated")  #+
    overran = sum(place.clock.overran for place in places()) - overran  #+
    if overran:  #+
        print(f"{overran} times this host took longer: the time_scale is too small")  #+


def run_file(source, target):
    with np.load(source, allow_pickle=False) as file:
        arrays = {name: file[name] for name in INPUTS}
    if all(arrays[name].shape == shape for name, (shape, _) in INPUTS.items()):
        answer = infer(arrays)
    else:
        frames = [dict(zip(arrays, its)) for its in zip(*arrays.values())]
        answers = [infer(frame) for frame in frames]
        answer = {name: np.stack([its[name] for its in answers]) for name in OUTPUTS}
    np.savez(target, **answer)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        time_noise()
    elif len(sys.argv) == 3:
        run_file(*sys.argv[1:])
    else:
        sys.exit(f"{sys.argv[0]}: expected no arguments, or IN.npz OUT.npz")
'''
