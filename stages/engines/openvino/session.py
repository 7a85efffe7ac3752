"""A network as OpenVINO runs it, or a cut of one: compiled in memory, with a request for each binding.

Some of its defaults do not fit here. On processors that have bfloat16 it computes in it, so the precision is always
stated. It pins the calling thread to a core, which is disabled, as the worker sets its own affinity. It looks for
weights beside a file, so they are embedded. With one stream of one thread, a run that fails raises nothing, and leaves
the outputs as they were (2026.4); without streams the calling thread computes, too, and errors are raised. The engine
is an extra, and imported only when a device needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import onnx

from shisha_rt.errors import Error, Failure
from shisha_rt.machine.device import Precision
from stages.engines.openvino.threads import THREADS, stay_where_put
from stages.engines.session import Array, Bound, CpuClock, Ends, EngineSession, Threads
from stages.memory_limit import is_for_memory

_CONVERTER: Final = "openvino.tools.ovc"
"""Converts other frameworks' models. The engine imports it if it can, which is half of its import and 14 MB."""
_PRECISIONS: Final[dict[Precision, str]] = {"fp32": "f32", "bf16": "bf16"}


def read_network(network: onnx.ModelProto | Path) -> Any:
    """An `openvino.Model` of a network or its file. Raises Failure if OpenVINO is not installed."""
    return _core().read_model(str(network) if isinstance(network, Path) else network.SerializeToString())


def compile_network(network: Any, precision: Precision, threads: int, *, profiled: bool = False) -> Any:
    """An `openvino.CompiledModel` of one stream at most; `profiled`: its requests keep the time of each node."""
    core = _core()
    if precision == "bf16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise Failure(
            "OpenVINO has no bfloat16 on this processor: expected one with AVX-512 BF16 or AMX, or devices of fp32",
            Error.ENGINE_REFUSES,
        )
    config = {
        "INFERENCE_PRECISION_HINT": _PRECISIONS[precision],
        "INFERENCE_NUM_THREADS": str(threads),
        "NUM_STREAMS": "1" if threads > 1 else "0",
        "ENABLE_CPU_PINNING": "NO",
        "PERF_COUNT": "YES" if profiled else "NO",
    }
    with THREADS.starting() if threads > 1 else nullcontext():
        return core.compile_model(network, "CPU", config)


class CompiledNetwork:
    """A network (`read_network`) that OpenVINO has compiled."""

    def __init__(self, network: Any, precision: Precision, threads: Threads) -> None:
        self._compiled = compile_network(network, precision, threads.count)
        self._cores: tuple[int, ...] = ()
        if threads.count > 1:
            self._cores = tuple(threads.others_cores or os.sched_getaffinity(os.getpid()))
        self._has_run = False

    def request(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Any:
        """A request for `infer`, on the memory of arrays in the network's order, which must fit and outlive it."""
        request = self._compiled.create_infer_request()
        for position, array in enumerate(inputs):
            request.set_input_tensor(position, shared_tensor(array))
        for position, array in enumerate(outputs):
            request.set_output_tensor(position, shared_tensor(array))
        return request

    def infer(self, request: Any) -> None:
        """Run a request. The first run starts the engine's threads, if it has any of its own."""
        if self._cores:
            THREADS.move_to(self._cores)
        with THREADS.starting() if self._cores and not self._has_run else nullcontext():
            request.infer(share_outputs=True)  # else it would return copies of the outputs
        self._has_run = True

    def give_back(self) -> None:
        self._compiled.release_memory()


def load_openvino() -> None:
    """Load the engine, which counts the cores usable now: it never has more threads. Raises Failure as above."""
    _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")  # a query loads the plugin


def shared_tensor(array: Array) -> Any:
    """An `openvino.Tensor` on the array's own memory."""
    import openvino

    return openvino.Tensor(array, shared_memory=True)


@lru_cache(maxsize=1)
def _core() -> Any:
    """The process's only `openvino.Core`: each further one would load the plugin and start threads again."""
    stay_where_put()
    sys.modules.setdefault(_CONVERTER, None)  # type: ignore[arg-type]  # then it cannot be imported
    try:
        import openvino
    except ImportError as error:
        raise Failure(
            "OpenVINO is not installed; expected the extra: pip install 'shisha-rt[openvino]'", Error.EXTRA_MISSING
        ) from error
    return openvino.Core()


class OpenVinoSession(EngineSession):
    """A network that `compiled` compiles.

    After a run has failed for lack of memory, all others fail, too (2026.4): the network is then compiled anew, once no
    request refers to the old one.
    """

    def __init__(self, compiled: Callable[[], CompiledNetwork], ends: Ends, weight_bytes: int) -> None:
        super().__init__(ends, weight_bytes)
        self._compile = compiled
        self._compiled: CompiledNetwork | None = compiled()
        self._bindings: WeakSet[_Binding] = WeakSet()

    @property
    def compiled(self) -> CompiledNetwork:
        if self._compiled is None:
            self._compiled = self._compile()
        return self._compiled

    def bind(self, arrays: Mapping[str, Array]) -> Bound:
        inputs, outputs = (
            [self.ends.fitting(spec, arrays) for spec in specs] for specs in (self.ends.inputs, self.ends.outputs)
        )
        binding = _Binding(self, inputs, outputs)
        self._bindings.add(binding)
        return binding

    def forget(self) -> None:
        """Drop all references to the compiled network."""
        for binding in self._bindings:
            binding.request = None
        self._compiled = None

    def give_back(self) -> None:
        if self._compiled is not None:
            self._compiled.give_back()


class _Binding:
    """A session bound to arrays, in the order of its inputs and outputs. A call computes the outputs."""

    __slots__ = ("__weakref__", "_inputs", "_outputs", "_session", "request")

    def __init__(self, session: OpenVinoSession, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        self._session, self._inputs, self._outputs = session, inputs, outputs
        self.request: Any = session.compiled.request(inputs, outputs)

    def __call__(self, _: CpuClock) -> tuple[float, ...]:
        compiled = self._session.compiled
        if self.request is None:
            self.request = compiled.request(self._inputs, self._outputs)
        try:
            compiled.infer(self.request)
        except RuntimeError as error:
            if is_for_memory(error):
                self._session.forget()
            raise
        return ()
