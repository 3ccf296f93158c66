#!/usr/bin/env python3
"""What a launch costs on the host in PyTorch (eager, torch.compile, CUDA graph) and CuPy.

The same measurement as graph_bench.cpp: bursts of calls that fit the driver's queue, 4,096 f32
elements of a * x + y, the wait for the device left out, medians. Run it in the same session as
graph_bench. What is not installed is left out and named.

    python3 bench/peers_launch.py [--json]
"""
import json
import statistics
import sys
import time

ELEMENTS, BURST, SAMPLES = 4096, 200, 60


def median_us(call, synchronize, count):
    call()
    synchronize()
    samples = []
    for _ in range(SAMPLES):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        samples.append((time.perf_counter() - begin) / count * 1e6)
        synchronize()
    return statistics.median(samples)


def device_us(torch, call):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples = []
    for _ in range(10):
        begin.record()
        call()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(samples)


def torch_figures(add):
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch sees no GPU")
    x, y = (torch.zeros(ELEMENTS, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    wait = torch.cuda.synchronize

    add("torch add(out=), one kernel", median_us(lambda: torch.add(x, y, alpha=2.0, out=out), wait, BURST))
    add("torch eager a * x + y", median_us(lambda: 2.0 * x + y, wait, BURST))
    compiled = torch.compile(lambda x, y: 2.0 * x + y)
    with torch.no_grad():
        add("torch.compile", median_us(lambda: compiled(x, y), wait, BURST))
    for length in (50, 300):
        graph = torch.cuda.CUDAGraph()
        torch.add(x, y, alpha=0.5, out=y)
        wait()
        with torch.cuda.graph(graph):
            for _ in range(length):
                torch.add(x, y, alpha=0.5, out=y)
        add(f"torch CUDA graph of {length}", median_us(graph.replay, wait, 8), device_us(torch, graph.replay))


def cupy_figures(add):
    import cupy

    x, y = (cupy.zeros(ELEMENTS, dtype=cupy.float32) for _ in range(2))
    out = cupy.empty_like(x)
    wait = cupy.cuda.Device().synchronize
    kernel = cupy.ElementwiseKernel("float32 a, float32 x, float32 y", "float32 z", "z = a * x + y", "axpy")
    add("CuPy ElementwiseKernel", median_us(lambda: kernel(2.0, x, y, out), wait, BURST))
    raw = cupy.RawKernel(
        'extern "C" __global__ void axpy(const float* x, const float* y, float* z, float a)'
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; z[i] = a * x[i] + y[i]; }",
        "axpy",
    )
    arguments = (x, y, out, cupy.float32(2))
    add("CuPy RawKernel", median_us(lambda: raw((ELEMENTS // 256,), (256,), arguments), wait, BURST))


def main():
    rows = []

    def add(name, host, device=None):
        rows.append({"name": name, "host_us": host, "device_us": device})

    for peer, figures in (("PyTorch", torch_figures), ("CuPy", cupy_figures)):
        try:
            figures(add)
        except Exception as error:  # a peer that is not there, or does not work here
            print(f"{peer} is left out: {type(error).__name__}: {error}", file=sys.stderr)
    if "--json" in sys.argv[1:]:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        device = "" if row["device_us"] is None else f"   device {row['device_us']:8.2f} us"
        print(f"{row['name']:32} host {row['host_us']:8.2f} us{device}")


if __name__ == "__main__":
    main()
