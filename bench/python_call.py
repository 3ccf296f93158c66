"""What a call from Python costs, beside the same call from C++, CuPy's ElementwiseKernel and torch.add:
nanoseconds of the host's time, not of the kernel's. PYTHONPATH must find kiln.

    python3 bench/python_call.py [--cpp build/bench/libcall_loop.so] [--device cuda|cpu] [--json FILE]

Every call is measured in bursts that fit the driver's queue, with the GPU idle before each, in turn with the
others of its framework; the least burst of each is reported, and for kiln what it is over the C++ call. `bound`
is a bound call, without operands to look at: the driver's launch and little more.
"""

import argparse
import ctypes
import json
import os
import time

import kiln

ROUNDS, CALLS = (3, 20) if os.environ.get("KILN_BENCH_SHORT") else (150, 200)


def nanoseconds_of(call):
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - start) / CALLS


class Rows:
    def __init__(self, framework, synchronize):
        self.framework, self.synchronize, self.measured = framework, synchronize, {}

    def call(self, name, call):
        self.measured[name] = lambda: nanoseconds_of(call)

    def cpp(self, library, device, stream, arrays, size):
        """The C++ call on three addresses: x, y and the output."""
        if library is None:
            return
        loop = ctypes.CDLL(library).kiln_call_loop
        loop.restype = ctypes.c_double
        loop.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_int]

        def measure():
            found = loop(device.encode(), stream, *arrays, size, CALLS)
            if found < 0:
                raise RuntimeError("the call from C++ failed")
            return found

        self.measured["kiln in C++"] = measure

    def report(self, rows):
        best = dict.fromkeys(self.measured, float("inf"))
        for _ in range(ROUNDS):  # in turn, so that a slow moment of the machine is everybody's
            for name, measure in self.measured.items():
                self.synchronize()
                best[name] = min(best[name], measure())
        self.synchronize()
        base = best.get("kiln in C++")
        for name, found in best.items():
            over = f"{found - base:+8.0f} over C++" if base and name.startswith("kiln, ") else ""
            print(f"{self.framework}: {name:30} {found:8.0f} ns {over}", flush=True)
            rows[f"{self.framework}: {name}"] = found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpp", help="the shared library of bench/call_loop.cpp")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--json")
    options = parser.parse_args()
    add = kiln.fuse("x + y", name="add")
    rows = {}
    on_gpu = options.device == "cuda"
    device = kiln.devices()[0] if on_gpu else "cpu"

    def nothing():
        pass

    def measure(framework, wait, arrays, addresses, stream, others):
        x, y, out = arrays
        table = Rows(framework, wait)
        table.call("an empty call of Python", nothing)
        table.cpp(options.cpp, device, stream, addresses, options.size)
        launch = add.bind(x, y, out=out)
        table.call("kiln, bound", lambda: launch())
        table.call("kiln, out=", lambda: add(x, y, out=out))
        table.call("kiln, allocated", lambda: add(x, y))
        for name, call in others.items():
            table.call(name, call)
        table.report(rows)

    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None:
        x, y, out = (torch.ones(options.size, device=options.device) for _ in range(3))
        measure("torch", torch.cuda.synchronize if on_gpu else nothing, (x, y, out),
                [array.data_ptr() for array in (x, y, out)],
                torch.cuda.current_stream().cuda_stream if on_gpu else None,
                {"torch.add, out=": lambda: torch.add(x, y, out=out), "torch.add, allocated": lambda: torch.add(x, y)})
    try:
        import cupy
    except ImportError:
        cupy = None
    if cupy is not None and on_gpu:
        a, b, c = (cupy.ones(options.size, cupy.float32) for _ in range(3))
        kernel = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x + y", "add")
        measure("cupy", cupy.cuda.runtime.deviceSynchronize, (a, b, c), [array.data.ptr for array in (a, b, c)],
                cupy.cuda.get_current_stream().ptr,
                {"ElementwiseKernel, out": lambda: kernel(a, b, c), "ElementwiseKernel, allocated": lambda: kernel(a, b)})
    if not on_gpu:
        import numpy

        a, b, c = (numpy.ones(options.size, numpy.float32) for _ in range(3))
        measure("numpy", nothing, (a, b, c), [array.ctypes.data for array in (a, b, c)], None,
                {"numpy.add, out=": lambda: numpy.add(a, b, out=c)})
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
