"""What a call from Python costs, beside CuPy's ElementwiseKernel and torch.add: nanoseconds of the
host's time, not of the kernel's. PYTHONPATH must find kiln.

    python3 bench/python_call.py [--device cuda|cpu] [--json FILE]

The C++ call of the same sum is measured by bench/call_bench, `cuda:0/call` and `cuda:0/bound`; `bound`
here, a bound call without operands to look at, is the driver's launch and little more.
"""

import argparse
import json
import time

import kiln


def best(call, synchronize, rounds=9, calls=2000):
    """The least mean of several rounds: what others on the machine add is only ever more."""
    found = float("inf")
    for _ in range(rounds):
        synchronize()
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        found = min(found, (time.perf_counter_ns() - start) / calls)
        synchronize()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--json")
    options = parser.parse_args()
    add = kiln.fuse("x + y", name="add")
    rows = {}

    def measure(name, call, synchronize):
        call()
        rows[name] = best(call, synchronize)
        print(f"{name:44} {rows[name]:8.0f} ns", flush=True)

    def nothing():
        pass

    measure("an empty call of Python", nothing, nothing)
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None:
        wait = torch.cuda.synchronize if options.device == "cuda" else nothing
        x, y, out = (torch.ones(options.size, device=options.device) for _ in range(3))
        launch = add.bind(x, y, out=out)
        measure("kiln, torch tensors, bound", launch, wait)
        measure("kiln, torch tensors, out=", lambda: add(x, y, out=out), wait)
        measure("kiln, torch tensors, allocated", lambda: add(x, y), wait)
        measure("torch.add, out=", lambda: torch.add(x, y, out=out), wait)
        measure("torch.add, allocated", lambda: torch.add(x, y), wait)
    try:
        import cupy
    except ImportError:
        cupy = None
    if cupy is not None and options.device == "cuda":
        wait = cupy.cuda.runtime.deviceSynchronize
        a, b, c = (cupy.ones(options.size, cupy.float32) for _ in range(3))
        kernel = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x + y", "add")
        launch = add.bind(a, b, out=c)
        measure("kiln, cupy arrays, bound", launch, wait)
        measure("kiln, cupy arrays, out=", lambda: add(a, b, out=c), wait)
        measure("kiln, cupy arrays, allocated", lambda: add(a, b), wait)
        measure("cupy.ElementwiseKernel, out", lambda: kernel(a, b, c), wait)
        measure("cupy.ElementwiseKernel, allocated", lambda: kernel(a, b), wait)
    if options.device == "cpu":
        import numpy

        a, b, c = (numpy.ones(options.size, numpy.float32) for _ in range(3))
        launch = add.bind(a, b, out=c)
        measure("kiln, numpy arrays, bound", launch, nothing)
        measure("kiln, numpy arrays, out=", lambda: add(a, b, out=c), nothing)
        measure("kiln, numpy arrays, allocated", lambda: add(a, b), nothing)
        measure("numpy.add, out=", lambda: numpy.add(a, b, out=c), nothing)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
