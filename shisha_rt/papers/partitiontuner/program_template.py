"""The text that all programs that run a schedule of partitions share. Pure."""

from __future__ import annotations

from typing import Final

# Lines of the text below that are for one kind of machine only end with one of these.
IF_EMULATED: Final = "  #+"
IF_REAL: Final = "  #-"

USE: Final = """
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

LOADERS: Final = (
    ({"onnxruntime", "as_it_stands"}, _LOAD_ORT),
    ({"as_it_stands"}, _LOAD_AS_IT_STANDS),
    ({"openvino", "openvino_bf16"}, _LOAD_OPENVINO),
    ({"openvino_bf16"}, _LOAD_OPENVINO_BF16),
)

FRAME: Final = '''
class Frame:
    """One frame: its tensors so far, and which partitions are done."""

    def __init__(self, inputs, partitions):
        self.tensors = inputs
        self.done = {name: threading.Event() for name in partitions}
        self.error = None
        self.start_s = time.monotonic()  #+
        self.done_s = {}  #+
'''

PLACES: Final = '''
class Partition:
    """Computes its part of a frame, once the partitions of `after` have done theirs.

    An exception becomes the frame's error, and nothing more of that frame is computed.
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
                frame.done[name].wait()
                self.clock.begin(frame.done_s[name])  #+
            if frame.error is None:
                self.compute(frame.tensors)  #-
                self.clock.run(lambda: self.compute(frame.tensors), self.takes_s)  #+
        except BaseException as error:  # noqa: BLE001 (infer raises it)
            frame.error = error
        finally:
            frame.done_s[self.name] = time.monotonic()  #+
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
            # For this thread, and for threads that its engine starts.
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
        """Yield frames to compute, until the program ends."""
        self.loaded.set()
        yield from iter(self.frames_to_run.get, None)  #-
        for frame in iter(self.frames_to_run.get, None):  #+
            self.clock.begin(frame.start_s)  #+
            yield frame  #+
'''

STARTED: Final = '''
    for place in found:
        place.start()
    atexit.register(end, found)
    for place in found:
        place.loaded.wait()
        if place.error is not None:
            raise place.error
    return found


def end(found):
    """End threads between frames: engines may crash if a thread ends during a run."""
    for place in found:
        place.frames_to_run.put(None)
    for place in found:
        place.join()
'''

MAIN: Final = '''
one_at_a_time = threading.Lock()


def infer(inputs):
    """The outputs by name, of inputs by name. Raises ValueError where those do not fit."""
    for name, (shape, dtype) in INPUTS.items():
        array = np.asarray(inputs.get(name))
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(f"input {name!r}: expected {dtype} of the shape {shape}")
    given = {name: np.ascontiguousarray(inputs[name]) for name in INPUTS}
    with one_at_a_time:
        partitions = [name for place in places() for name in place.partitions]
        frame = Frame(given, partitions)
        for place in places():
            place.frames_to_run.put(frame)
        for place in places():
            frame.done[place.partitions[-1]].wait()
    if frame.error is not None:
        raise frame.error
    return {name: frame.tensors[name] for name in OUTPUTS}


def noise(shape, dtype, generator):
    """Random floats; integers are 0, as they may be indices."""
    if np.dtype(dtype).kind != "f":
        return np.zeros(shape, dtype)
    return generator.standard_normal(shape).astype(dtype)


def time_noise(warm=3, timed=20):
    generator = np.random.default_rng(0)
    frame = {
        name: noise(shape, dtype, generator) for name, (shape, dtype) in INPUTS.items()
    }
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
        missing = [name for name in INPUTS if name not in file]
        if missing:
            sys.exit(f"{source}: no array {missing[0]}, expected {', '.join(INPUTS)}")
        arrays = {name: file[name] for name in INPUTS}
    if all(arrays[name].shape == shape for name, (shape, _) in INPUTS.items()):
        answer = infer(arrays)
    else:
        counts = {len(array) if array.ndim else 0 for array in arrays.values()}
        if len(counts) > 1 or 0 in counts:
            sys.exit(f"{source}: expected one frame, or as many of each input")
        frames = [dict(zip(arrays, inputs)) for inputs in zip(*arrays.values())]
        answers = [infer(frame) for frame in frames]
        answer = {name: np.stack([made[name] for made in answers]) for name in OUTPUTS}
    np.savez(target, **answer)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        time_noise()
    elif len(sys.argv) == 3:
        run_file(*sys.argv[1:])
    else:
        sys.exit(f"{sys.argv[0]}: expected no arguments, or IN.npz OUT.npz")
'''
