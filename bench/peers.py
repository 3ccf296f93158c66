#!/usr/bin/env python3
"""What others take for the cases of `kiln bench`: PyTorch eager, torch.compile, Triton and CuPy on a
GPU, PyTorch, torch.compile and numexpr on the CPU, each where it is installed.

Shapes, dtypes and layouts are those of src/tool/bench_cases.cpp. Every time is reported as a fraction of a
copy that is measured in the same run, and every result is compared with one computed in float64.

    bench/peers.py [--device cuda|cpu] [--peers NAME,NAME] [--mebibytes N] [--samples N]
                   [--budget SECONDS] [--kiln PATH] [--json FILE] [CASE ...]

With --kiln the tool's own numbers, from a run of it on the same machine, stand in the same table.
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError:
    torch = None
try:
    import numpy
except ImportError:
    numpy = None
try:
    import numexpr
except ImportError:
    numexpr = None
try:
    import cupy
except ImportError:
    cupy = None
try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

COLUMNS = 4096
PADDING = 64
GROUP = 64

# name: [(operand, dtype, form), ...], dtype of the output, and its form where it is no matrix
CASES = {
    "copy": ([("x", "f32", "matrix")], "f32"),
    "silu_mul_bf16": ([("x", "bf16", "matrix"), ("y", "bf16", "matrix")], "bf16"),
    "silu_mul_f32": ([("x", "f32", "matrix"), ("y", "f32", "matrix")], "f32"),
    "gelu_tanh_f16": ([("x", "f16", "matrix")], "f16"),
    "chain12_f32": ([("x", "f32", "matrix"), ("y", "f32", "matrix")], "f32"),
    "bias_gelu_residual_bf16": (
        [("x", "bf16", "matrix"), ("bias", "bf16", "row"), ("residual", "bf16", "matrix")],
        "bf16",
    ),
    "transpose_add_f32": ([("x", "f32", "matrix"), ("y", "f32", "transposed")], "f32"),
    "row_strided_add_f32": ([("x", "f32", "padded"), ("y", "f32", "padded")], "f32"),
    "dequant_u4_bf16": (
        [("q", "u4", "matrix"), ("scale", "bf16", "column"), ("bias", "bf16", "column")],
        "bf16",
    ),
    "cast_f32_bf16": ([("x", "f32", "matrix")], "bf16"),
    "rmsnorm_4096_bf16": ([("x", "bf16", "matrix"), ("w", "bf16", "row")], "bf16"),
    "rmsnorm_4096_f32": ([("x", "f32", "matrix"), ("w", "f32", "row")], "f32"),
    "layer_norm_4096_bf16": (
        [("x", "bf16", "matrix"), ("w", "bf16", "row"), ("b", "bf16", "row")],
        "bf16",
    ),
    "softmax_4096_bf16": ([("x", "bf16", "matrix")], "bf16"),
    "softmax_4096_f32": ([("x", "f32", "matrix")], "f32"),
    "logsumexp_4096_bf16": ([("x", "bf16", "matrix")], "f32", "column"),
    "row_sum_f32": ([("x", "f32", "matrix")], "f32", "one"),
    "column_sum_f32": ([("x", "f32", "matrix")], "f32", "row"),
}
BITS = {"u4": 4, "f16": 16, "bf16": 16, "f32": 32}


def shape_of(case, mebibytes):
    operands, output = CASES[case][:2]
    widest = max([BITS[output]] + [BITS[dtype] for _, dtype, _ in operands])
    rows = (mebibytes << 20) * 8 // widest // COLUMNS
    return (rows * COLUMNS // GROUP, GROUP) if case.startswith("dequant") else (rows, COLUMNS)


def bytes_of(case, mebibytes):
    """That a call reads and writes, every element of every operand once."""
    rows, columns = shape_of(case, mebibytes)
    count = {"row": columns, "column": rows, "one": 1}
    operands, output, *form = CASES[case]
    arrays = [(dtype, form) for _, dtype, form in operands] + [(output, *(form or ["matrix"]))]
    return sum(BITS[dtype] * count.get(form, rows * columns) for dtype, form in arrays) // 8


# ---- PyTorch ------------------------------------------------------------------------------------


def torch_inputs(case, mebibytes, device):
    types = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
    rows, columns = shape_of(case, mebibytes)
    generator = torch.Generator(device=device).manual_seed(1)

    def random(*shape, dtype):
        values = torch.empty(shape, dtype=dtype, device=device)
        return values.normal_(0, 2, generator=generator)

    def operand(dtype, form):
        if dtype == "u4":
            shape = (rows, columns // 2)
            return torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=generator)
        if form == "row":
            return random(columns, dtype=types[dtype])
        if form == "column":
            return random(rows, 1, dtype=types[dtype])
        if form == "transposed":
            return random(columns, rows, dtype=types[dtype]).t()
        if form == "padded":
            return random(rows, columns + PADDING, dtype=types[dtype])[:, :columns]
        return random(rows, columns, dtype=types[dtype])

    return [operand(dtype, form) for _, dtype, form in CASES[case][0]]


functional = torch.nn.functional if torch else None


def chain12(x, y):
    t = torch.tanh(x * y + 0.5) * torch.log1p(torch.exp(-torch.abs(x - y)))
    return 0.5 * torch.maximum(t, x) + y


def dequantize(q, scale, bias):
    nibbles = torch.stack((q & 15, q >> 4), dim=-1).flatten(-2)
    return nibbles.to(scale.dtype) * scale + bias


def rmsnorm(x, w):
    return functional.rms_norm(x, x.shape[-1:], w, 1e-5)


def torch_function(case):
    return {
        "copy": lambda x: x.clone(),
        "silu_mul_bf16": lambda x, y: functional.silu(x) * y,
        "silu_mul_f32": lambda x, y: functional.silu(x) * y,
        "gelu_tanh_f16": lambda x: functional.gelu(x, approximate="tanh"),
        "chain12_f32": chain12,
        "bias_gelu_residual_bf16": lambda x, bias, r: functional.gelu(x + bias) + r,
        "transpose_add_f32": lambda x, y: x + y,
        "row_strided_add_f32": lambda x, y: functional.relu(x) + y,
        "dequant_u4_bf16": dequantize,
        "cast_f32_bf16": lambda x: x.to(torch.bfloat16),
        "rmsnorm_4096_bf16": rmsnorm,
        "rmsnorm_4096_f32": rmsnorm,
        "layer_norm_4096_bf16": lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b, 1e-5),
        "softmax_4096_bf16": lambda x: torch.softmax(x * 0.125, -1),
        "softmax_4096_f32": lambda x: torch.softmax(x * 0.125, -1),
        "logsumexp_4096_bf16": lambda x: torch.logsumexp(x, -1, keepdim=True),
        "row_sum_f32": lambda x: x.sum(),
        "column_sum_f32": lambda x: x.sum(0, keepdim=True),
    }[case]


def is_right(case, inputs, result):
    """The first and last rows against the same expression in float64; sums of everything whole."""
    if case in ("row_sum_f32", "column_sum_f32"):
        wanted = torch_function(case)(inputs[0].double())
        return torch.allclose(result.double(), wanted, rtol=0.01, atol=1e-4 * inputs[0].numel() ** 0.5)
    for row in (slice(0, 1), slice(-1, None)):
        part = [x if x.dim() == 1 else x[row] for x in inputs]
        if case.startswith("dequant"):
            wanted = dequantize(part[0], part[1].double(), part[2].double())
        elif case == "cast_f32_bf16":
            wanted = part[0].double()
        else:
            wanted = torch_function(case)(*[x.double() for x in part])
        # Rounding after each operation, as eager does in 16 bits, loses two or three digits.
        if not torch.allclose(result[row].double(), wanted, rtol=0.03, atol=0.06):
            return False
    return True


def torch_eager(case, inputs):
    function = torch_function(case)
    return lambda: function(*inputs)


def torch_compile(case, inputs):
    torch._dynamo.reset()
    function = torch.compile(torch_function(case), dynamic=False)
    return lambda: function(*inputs)


# ---- Triton -------------------------------------------------------------------------------------

if triton is not None:

    @triton.jit
    def tanh_of(x):
        return 1 - 2 / (tl.exp(2 * x) + 1)

    @triton.jit
    def silu_mul_kernel(x, y, out, n, B: tl.constexpr):
        i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
        a = tl.load(x + i, i < n).to(tl.float32)
        b = tl.load(y + i, i < n).to(tl.float32)
        tl.store(out + i, a / (1 + tl.exp(-a)) * b, i < n)

    @triton.jit
    def gelu_tanh_kernel(x, out, n, B: tl.constexpr):
        i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
        a = tl.load(x + i, i < n).to(tl.float32)
        inner = 0.7978845608028654 * (a + 0.044715 * a * a * a)
        tl.store(out + i, 0.5 * a * (1 + tanh_of(inner)), i < n)

    @triton.jit
    def chain12_kernel(x, y, out, n, B: tl.constexpr):
        i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
        a = tl.load(x + i, i < n)
        b = tl.load(y + i, i < n)
        t = tanh_of(a * b + 0.5) * tl.log(1 + tl.exp(-tl.abs(a - b)))
        tl.store(out + i, 0.5 * tl.maximum(t, a) + b, i < n)

    @triton.jit
    def cast_kernel(x, out, n, B: tl.constexpr):
        i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
        tl.store(out + i, tl.load(x + i, i < n), i < n)

    @triton.jit
    def bias_gelu_kernel(x, bias, r, out, columns, B: tl.constexpr):
        j = tl.program_id(1) * B + tl.arange(0, B)
        i = tl.program_id(0).to(tl.int64) * columns + j
        inside = j < columns
        a = tl.load(x + i, inside).to(tl.float32) + tl.load(bias + j, inside).to(tl.float32)
        gelu = 0.5 * a * (1 + tl.erf(a * 0.7071067811865476))
        tl.store(out + i, gelu + tl.load(r + i, inside).to(tl.float32), inside)

    @triton.jit
    def relu_add_kernel(x, y, out, columns, stride, B: tl.constexpr):
        j = tl.program_id(1) * B + tl.arange(0, B)
        row = tl.program_id(0).to(tl.int64)
        inside = j < columns
        a = tl.load(x + row * stride + j, inside)
        b = tl.load(y + row * stride + j, inside)
        tl.store(out + row * columns + j, tl.maximum(a, 0) + b, inside)

    @triton.jit
    def transpose_add_kernel(x, y, out, rows, columns, B: tl.constexpr):
        i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
        j = tl.program_id(1).to(tl.int64) * B + tl.arange(0, B)
        inside = (i[:, None] < rows) & (j[None, :] < columns)
        a = tl.load(x + i[:, None] * columns + j[None, :], inside)
        # Read along the rows of memory, turned round in registers.
        b = tl.load(y + j[:, None] * rows + i[None, :], (j[:, None] < columns) & (i[None, :] < rows))
        tl.store(out + i[:, None] * columns + j[None, :], a + tl.trans(b), inside)


def triton_run(case, inputs):
    if triton is None:
        raise NotImplementedError("Triton is not installed")
    rows, columns = inputs[0].shape
    n = rows * columns
    kinds = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    out = torch.empty((rows, columns), dtype=kinds[CASES[case][1]], device=inputs[0].device)
    block = 1024
    flat = (triton.cdiv(n, block),)
    by_row = (rows, triton.cdiv(columns, block))
    launches = {
        "copy": lambda: cast_kernel[flat](*inputs, out, n, B=block),
        "silu_mul_bf16": lambda: silu_mul_kernel[flat](*inputs, out, n, B=block),
        "silu_mul_f32": lambda: silu_mul_kernel[flat](*inputs, out, n, B=block),
        "gelu_tanh_f16": lambda: gelu_tanh_kernel[flat](*inputs, out, n, B=block),
        "chain12_f32": lambda: chain12_kernel[flat](*inputs, out, n, B=block),
        "cast_f32_bf16": lambda: cast_kernel[flat](*inputs, out, n, B=block),
        "bias_gelu_residual_bf16": lambda: bias_gelu_kernel[by_row](*inputs, out, columns, B=block),
        "row_strided_add_f32": lambda: relu_add_kernel[by_row](
            *inputs, out, columns, inputs[0].stride(0), B=block
        ),
        "transpose_add_f32": lambda: transpose_add_kernel[
            (triton.cdiv(rows, 64), triton.cdiv(columns, 64))
        ](*inputs, out, rows, columns, B=64),
    }
    if case not in launches:
        raise NotImplementedError("no kernel was written for it")
    launch = launches[case]

    def run():
        launch()
        return out

    return run


# ---- CuPy ---------------------------------------------------------------------------------------

CUPY_KERNELS = {
    "silu_mul_f32": ("float32 x, float32 y", "float32 z", "z = x / (1 + expf(-x)) * y"),
    "gelu_tanh_f16": (
        "float16 x",
        "float16 z",
        "float a = x; z = 0.5f * a * (1 + tanhf(0.7978845608f * (a + 0.044715f * a * a * a)))",
    ),
    "chain12_f32": (
        "float32 x, float32 y",
        "float32 z",
        "float t = tanhf(x * y + 0.5f) * log1pf(expf(-fabsf(x - y))); z = 0.5f * fmaxf(t, x) + y",
    ),
    "transpose_add_f32": ("float32 x, float32 y", "float32 z", "z = x + y"),
    "row_strided_add_f32": ("float32 x, float32 y", "float32 z", "z = fmaxf(x, 0) + y"),
    "copy": ("float32 x", "float32 z", "z = x"),
}


def cupy_run(case, inputs):
    if cupy is None:
        raise NotImplementedError("CuPy is not installed")
    if case not in CUPY_KERNELS:
        raise NotImplementedError("CuPy has no bfloat16 and no 4-bit integers, or no kernel was written")
    kernel = cupy.ElementwiseKernel(*CUPY_KERNELS[case], case)
    arrays = [cupy.from_dlpack(x) for x in inputs]
    out = torch.empty(tuple(inputs[0].shape), dtype=inputs[0].dtype, device=inputs[0].device)
    target = cupy.from_dlpack(out)
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)

    def run():
        with stream:
            kernel(*arrays, target)
        return out

    return run


# ---- numexpr ------------------------------------------------------------------------------------

# Constants are variables, since a literal would make numexpr compute in float64; it has no statements
# and no maximum.
_T = "(tanh(x * y + half) * log1p(exp(-abs(x - y))))"
NUMEXPR = {
    "copy": "x",
    "silu_mul_f32": "x / (one + exp(-x)) * y",
    "chain12_f32": f"half * where({_T} > x, {_T}, x) + y",
    "transpose_add_f32": "x + y",
    "row_strided_add_f32": "where(x > zero, x, zero) + y",
}


def numexpr_run(case, inputs):
    if numexpr is None:
        raise NotImplementedError("numexpr is not installed")
    if case not in NUMEXPR:
        raise NotImplementedError("numexpr has no 16-bit floats, no 4-bit integers and no rows")
    arrays = {name: x.numpy() for (name, _, _), x in zip(CASES[case][0], inputs)}
    out = torch.empty(tuple(inputs[0].shape), dtype=torch.float32)
    target = out.numpy()
    text = NUMEXPR[case]
    constants = {"zero": 0, "half": 0.5, "one": 1}
    arrays.update({name: numpy.float32(value) for name, value in constants.items() if name in text})

    def run():
        numexpr.evaluate(text, local_dict=arrays, out=target, casting="same_kind")
        return out

    return run


# ---- Measuring ----------------------------------------------------------------------------------


def time_us(run, device, samples):
    calls = 10 if device == "cuda" else 3
    for _ in range(3):
        run()
    times = []
    for _ in range(samples):
        if device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(calls):
                run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / calls)
        else:
            start = time.perf_counter()
            for _ in range(calls):
                run()
            times.append((time.perf_counter() - start) * 1e6 / calls)
    return statistics.median(times)


def copy_speed(device, mebibytes, samples):
    """Bytes read and written per microsecond."""
    source = torch.ones(mebibytes << 18, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * (mebibytes << 20) / time_us(lambda: target.copy_(source), device, samples)


def measure_peer(peer, case, inputs, options):
    start = time.perf_counter()
    row = {"case": case, "peer": peer}
    try:
        run = PEERS[options.device][peer](case, inputs)
        result = run()
        if options.device == "cuda":
            torch.cuda.synchronize()
        row["first_call_s"] = round(time.perf_counter() - start, 3)
        row["right"] = is_right(case, inputs, result)
        del result
        row["microseconds"] = time_us(run, options.device, options.samples)
    except Exception as error:  # whatever a peer cannot do must not end the others' run
        row["skipped"] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    return row


PEERS = {
    "cuda": {
        "eager": torch_eager,
        "triton": triton_run,
        "cupy": cupy_run,
        "compile": torch_compile,
    },
    "cpu": {"eager": torch_eager, "numexpr": numexpr_run, "compile": torch_compile},
}


def measure_kiln(options, cases):
    known = [case for case in cases if case in CASES]
    command = [options.kiln, "bench", *known, "--json", "--device", options.device]
    command += ["--size", str(options.mebibytes)]
    finished = subprocess.run(command, capture_output=True, text=True)
    try:
        report = json.loads(finished.stdout)
    except json.JSONDecodeError:
        return [{"case": "all", "peer": "kiln", "skipped": finished.stderr.strip()[:160]}]
    return [
        {
            "case": item["case"],
            "peer": "kiln",
            "microseconds": item["microseconds"],
            "gb_per_s": item["gb_per_s"],
            "fraction_of_copy": item["fraction_of_copy"],
            "right": item["right"],
        }
        for item in report["cases"]
    ]


def print_table(device, hardware, copy, rows):
    print(f"{device} ({hardware}), copy {copy / 1e3:.0f} GB/s")
    print(f"{'case':26}{'peer':10}{'time':>12}{'GB/s':>8}{'of copy':>9}")
    for row in rows:
        if "skipped" in row:
            print(f"{row['case']:26}{row['peer']:10}{'skipped: ' + row['skipped']}")
            continue
        wrong = "" if row["right"] else "  WRONG RESULT"
        print(
            f"{row['case']:26}{row['peer']:10}{row['microseconds']:9.1f} us"
            f"{row['gb_per_s']:8.0f}{row['fraction_of_copy']:9.3f}{wrong}"
        )


def default_mebibytes(device):
    """As of `kiln bench`: more than caches hold from one call to the next."""
    if device == "cuda":
        return 512
    caches = {}
    for folder in glob.glob("/sys/devices/system/cpu/cpu*/cache/index3"):
        with open(os.path.join(folder, "shared_cpu_list")) as cores, open(os.path.join(folder, "size")) as size:
            caches[cores.read()] = int(size.read().strip().rstrip("K"))
    return min(max(2 * sum(caches.values()) // 1024, 64), 512)


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda if there is one")
    parser.add_argument("--peers", help="only these of eager, compile, triton, cupy, numexpr")
    parser.add_argument("--mebibytes", type=int, help="of the widest operand; 512, on the CPU 64 or twice its caches")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--budget", type=float, default=85, help="seconds, after which cases are skipped")
    parser.add_argument("--kiln", metavar="PATH", help="the kiln tool, to be measured too")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there; - is standard output")
    options = parser.parse_args()
    unknown = [case for case in options.cases if case not in CASES]
    if unknown:
        parser.error(f"there is no case '{unknown[0]}'; the cases are {', '.join(CASES)}")
    return options


def main():
    options = parse_options()
    if torch is None:
        print("peers.py: PyTorch is not installed; it makes the data and measures the copy", file=sys.stderr)
        return 1
    started = time.perf_counter()
    if options.device is None:
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.mebibytes is None:
        options.mebibytes = default_mebibytes(options.device)
    cases = options.cases or list(CASES)
    hardware = torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} threads"
    copy = copy_speed(options.device, options.mebibytes, options.samples)
    rows = []
    # Compilers last, so that a small budget still gives every other number.
    chosen = options.peers.split(",") if options.peers else list(PEERS[options.device])
    for peers in ([p for p in chosen if p != "compile"], [p for p in chosen if p == "compile"]):
        for case in cases if peers else []:
            if time.perf_counter() - started > options.budget:
                rows += [{"case": case, "peer": peer, "skipped": "out of time"} for peer in peers]
                continue
            inputs = torch_inputs(case, options.mebibytes, options.device)
            for peer in peers:
                row = measure_peer(peer, case, inputs, options)
                if "skipped" not in row:
                    row["gb_per_s"] = bytes_of(case, options.mebibytes) / row["microseconds"] / 1e3
                    row["fraction_of_copy"] = row["gb_per_s"] * 1e3 / copy
                rows.append(row)
            del inputs
    if options.device == "cuda":
        torch.cuda.empty_cache()
    if options.kiln:
        rows += measure_kiln(options, cases)
    order = {case: index for index, case in enumerate(CASES)}
    rows.sort(key=lambda row: order.get(row["case"], len(order)))
    report = {
        "device": options.device,
        "hardware": hardware,
        "copy_gb_per_s": copy / 1e3,
        "torch": torch.__version__,
        "cases": rows,
    }
    if options.json == "-":
        print(json.dumps(report, indent=2))
        return 0
    print_table(options.device, hardware, copy, rows)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(report, file, indent=2)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
