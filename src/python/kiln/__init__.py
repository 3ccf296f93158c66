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
)
from kiln._kiln import _record, version as _version
from kiln._results import DeviceInfo, Error, ExplainedKernel, Explanation, KernelInfo
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


def _info(self, *arguments, **keywords):
    """The kernel that such a call uses; found or compiled, not launched."""
    return KernelInfo(**self._kernel(*arguments, **keywords))


def _described(self, *arguments, **keywords):
    """The kernel that such a call would use now; nothing is compiled. Its ``fallback`` says whether it
    is missing, so that ``on_miss="fallback"`` would serve the call without it."""
    return KernelInfo(**self._look_up(*arguments, **keywords))


def _prepare(self, *operands, device=None):
    """Compiles the kernel of such a call in the background: ``prepare("bf16[4096,4096]", "f32")``.

    An operand is a type (without brackets: a number), an array or a number. ``device`` is needed
    where no operand is an array.
    """
    if device is None:
        arrays = [operand for operand in operands if hasattr(operand, "__dlpack__")]
        device = arrays[0] if arrays else devices()[0]
    return self._prepare(operands, device)


Function.info = _info
Function.look_up = _described
Function.prepare = _prepare

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
    "library_call",
    "program",
    "record",
    "set_log",
    "bitcast",
    "cast",
    "concat",
    "iota",
    "stack",
    *_trace.functions,
]
__all__ = sorted(set(__all__))
