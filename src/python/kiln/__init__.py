"""kiln fuses a chain of array operations into one kernel, for AMD and NVIDIA GPUs and the CPU.

>>> import kiln
>>> swiglu = kiln.fuse("silu(gate) * up")
>>> y = swiglu(gate, up)  # arrays of NumPy, PyTorch, CuPy, JAX: anything with __dlpack__
"""

from __future__ import annotations

import atexit

from kiln import _kiln, _trace
from kiln._kiln import (
    Function,
    Graph,
    Kernel,
    Launch,
    Preparation,
    Program,
    Recorder,
    Value,
    View,
    compile_targets,
    configure,
    copy,
    device_info,
    devices,
    kernel,
    statistics,
)
from kiln._kiln import _lend_fallback_memory, _prepare_all, _record, version as _version
from kiln._results import DeviceInfo, Error, ExplainedKernel, Explanation, KernelInfo, Statistics
from kiln._trace import fuse, library_call, program

from kiln import cache  # isort: skip: needs what is above

__version__ = _version()

# Every function of the text form by its name, and those that Python writes otherwise.
globals().update(_trace.functions)
from kiln._trace import bitcast, cast, concat, iota, stack  # noqa: E402: instead of those by name


def set_log(callback):
    """Calls ``callback(level, line)`` with each line of the log, from any thread; None silences it."""
    _kiln.set_log(callback)
    if callback is not None:  # threads of kiln may log while Python ends
        atexit.unregister(_kiln.set_log)
        atexit.register(_kiln.set_log, None)


def record(device, body=None):
    """A graph of what ``body(recorder)`` calls: many calls, one submission.

    ``device`` is "cpu", "cuda:0", "hip:0", or an array that is there. Also a decorator:

    >>> @kiln.record("cpu")
    ... def token(recorder):
    ...     recorder.call(swiglu, gate, up, out=y)
    >>> token()
    """
    if body is None:
        return lambda function: _record(device, function)
    return _record(device, body)


def _prepare(self, *operands, device=None):
    """Compiles the kernels of such a call in the background: ``prepare("bf16[4096,4096]", "f32")``.

    An operand is a type (without brackets: a number), an array or a number. ``device`` is needed
    where no operand is an array.
    """
    return self._prepare(operands, _device_for(operands, device))


def _device_for(operands, device):
    if device is not None:
        return device
    arrays = [operand for operand in operands if hasattr(operand, "__dlpack__")]
    return arrays[0] if arrays else devices()[0]


Function.prepare = Program.prepare = _prepare


def prepare_all(calls, *, device=None, progress=None):
    """Prepares many calls side by side, and returns when every one is done.

    >>> kiln.prepare_all([(swiglu, "bf16[4096,11008]", "bf16[4096,11008]"), (norm, x, w)])

    A call is a Function and what its ``prepare`` takes. ``progress(index, done, total)`` is called
    once for each. Returns a Preparation of each: one that failed stops no other, and its ``wait()``
    raises what it failed with.
    """
    return _prepare_all(
        [(call[0], tuple(call[1:]), _device_for(call[1:], device)) for call in calls], progress
    )


_lent = {}


def lend_fallback_memory(memory, device=None):
    """Lends the memory of an array to calls with ``on_miss="fallback"`` on its device, until other
    memory is lent; None takes back what ``device`` was lent."""
    if memory is None and device is None:
        raise Error("lend_fallback_memory: expected an array, or None and a device")
    _lent[_lend_fallback_memory(device if memory is None else memory, memory)] = memory


__all__ = [
    "DeviceInfo",
    "Error",
    "ExplainedKernel",
    "Explanation",
    "Function",
    "Graph",
    "Kernel",
    "KernelInfo",
    "Launch",
    "Preparation",
    "Program",
    "Recorder",
    "Statistics",
    "Value",
    "View",
    "cache",
    "compile_targets",
    "configure",
    "copy",
    "device_info",
    "devices",
    "fuse",
    "kernel",
    "lend_fallback_memory",
    "library_call",
    "prepare_all",
    "program",
    "record",
    "set_log",
    "statistics",
    "bitcast",
    "cast",
    "concat",
    "iota",
    "stack",
    *_trace.functions,
]
__all__ = sorted(set(__all__))
