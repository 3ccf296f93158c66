#!/usr/bin/env python3
"""What PyTorch takes for the functions of bench/corpus/functions.txt: eager and torch.compile.

The text of a function is Python, so each is run as it stands, with the names of kiln's language bound
to PyTorch. Sizes, dtypes and layouts of the results are those of `kiln bench --corpus`; a time is a
fraction of a copy, measured in the same run, that moves what the function has to move: every input
read and every output written once.

    bench/peers_corpus.py [--device cuda|cpu] [--mebibytes N] [--samples N] [--peers eager,compile]
                          [--part I/N] [--workers N] [--budget SECONDS] [--kiln PATH] [--json FILE]
                          [--corpus FILE | --drawn FILE] [FUNCTION ...]

--drawn measures the functions that a sweep has drawn, at the sizes that it has drawn: what
`kiln bench --sweep --json` wrote, whose times are compared, or `kiln bench --sweep --list --json`.

torch.compile takes seconds for a function, so with --workers that many processes first compile all of
them into its cache on disk; then one process measures. Rows are printed, and the file of --json is
written, as they come.
"""

import argparse
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time

import torch

from peers import copy_speed, default_mebibytes

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "functions.txt")
DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "i64": torch.int64, "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
    "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
}
BITS = {"f64": 64, "i64": 64, "f32": 32, "i32": 32, "f16": 16, "bf16": 16, "u4": 4, "i4": 4}


class Packed:
    """u4 or i4: two of them in each byte of `data`, unpacked where they are used."""

    def __init__(self, data, signed):
        self.data, self.signed = data, signed

    def numel(self):
        return 2 * self.data.numel()

    def unpacked(self):
        low, high = self.data & 15, self.data >> 4
        values = torch.stack((low, high), dim=-1).flatten(-2).to(torch.int32)
        return ((values ^ 8) - 8) if self.signed else values


def packed(x):
    """Numbers of 4 bits, two to a byte, as kiln stores them."""
    low, high = (part.to(torch.int32) & 15 for part in (x[..., 0::2], x[..., 1::2]))
    return (low | high << 4).to(torch.uint8)


def wide(x):
    return x.unpacked() if isinstance(x, Packed) else x


def cast(dtype):
    return lambda x: wide(x).to(dtype)


def reduction(function):
    return lambda x, *axes: function(wide(x), dim=list(axes or range(x.dim())), keepdim=True)


def iota(shape, device):
    """Indices along an axis of the largest argument."""

    def along(axis):
        extents = [1] * len(shape)
        extents[axis] = shape[axis]
        return torch.arange(shape[axis], device=device, dtype=torch.int32).reshape(extents)

    return along


def variance(x, dim, keepdim):
    return torch.var(x, dim, correction=0, keepdim=keepdim)


def common(*values):
    """The dtype that kiln gives to a composition of them."""
    dtype = values[0].dtype
    for value in values[1:]:
        dtype = torch.promote_types(dtype, value.dtype)
    return dtype


# PyTorch has functions of its own where all operands have one dtype.
def rms_norm(x, weight, eps):
    if x.dtype == weight.dtype:
        return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)
    y = x.float()
    y = y * torch.rsqrt(torch.mean(y * y, -1, keepdim=True) + eps) * weight.float()
    return y.to(common(x, weight))


def layer_norm(x, weight, bias, eps):
    if x.dtype == weight.dtype == bias.dtype:
        return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)
    y = torch.nn.functional.layer_norm(x.float(), x.shape[-1:], weight.float(), bias.float(), eps)
    return y.to(common(x, weight, bias))


def scalar_where(condition, a, b):
    like = a if torch.is_tensor(a) else b

    def tensor_of(value):
        if torch.is_tensor(value):
            return value
        return torch.full((), value, dtype=like.dtype, device=like.device)

    return torch.where(condition, tensor_of(a), tensor_of(b))


def reshape(x, *extents):
    return x.reshape([x.shape[k] if extent == 0 else extent for k, extent in enumerate(extents)])


def names_for(first):
    functional = torch.nn.functional
    shape, device = first.shape, first.device
    plain = ["exp", "log", "log10", "sqrt", "rsqrt", "tanh", "sigmoid", "abs", "round", "sin", "cos",
             "relu", "sign"]
    names = {name: getattr(torch, name) for name in plain}
    names.update({dtype: cast(torch_dtype) for dtype, torch_dtype in DTYPES.items()})
    names.update(
        sum=reduction(torch.sum), mean=reduction(torch.mean), max=reduction(torch.amax),
        min=reduction(torch.amin), var=reduction(variance), norm2=reduction(torch.linalg.vector_norm),
        std=reduction(lambda x, dim, keepdim: torch.sqrt(variance(x, dim, keepdim))),
        logsumexp=reduction(torch.logsumexp), argmax=lambda x, axis: torch.argmax(x, axis, keepdim=True),
        softmax=torch.softmax, log_softmax=torch.log_softmax, cumsum=torch.cumsum,
        cummax=lambda x, axis: torch.cummax(x, axis).values, iota=iota(shape, device),
        u4=packed, i4=packed, gelu=functional.gelu, leaky_relu=functional.leaky_relu,
        hardswish=functional.hardswish, quick_gelu=lambda x: x * torch.sigmoid(1.702 * x),
        silu=functional.silu, gelu_tanh=lambda x: functional.gelu(x, approximate="tanh"),
        mish=functional.mish, softplus=functional.softplus, rms_norm=rms_norm, layer_norm=layer_norm,
        squared_relu=lambda x: torch.relu(x) ** 2, where=scalar_where, inf=float("inf"),
        clip=torch.clamp,
        maximum=lambda x, y: torch.maximum(x, y) if torch.is_tensor(y) else torch.clamp(x, min=y),
        uniform=lambda seed, offset: torch.rand(shape, device=device),
        reshape=reshape, expand_dims=torch.unsqueeze, squeeze=torch.squeeze, swapaxes=torch.swapaxes,
        transpose=lambda x, *axes: x.permute(*(axes or reversed(range(x.dim())))),
        stack=lambda axis, *parts: torch.stack(parts, axis),
        concat=lambda axis, *parts: torch.cat(parts, axis),
        unpacked=wide,
    )
    return names


def python_of(text):
    """A def from the statements, the last of which is what it returns."""
    statements = [statement.strip() for statement in text.split(";") if statement.strip()]
    match = re.match(r"^(\w+) = (?!=)(.*)$", statements[-1])
    statements[-1] = "return " + (match.group(2) if match else statements[-1])
    return statements


def function_of(text, inputs):
    """The text as a function of the inputs, which are tensors or Packed."""
    first = max((x for x in inputs.values()), key=lambda x: x.numel())
    # Where a packed operand is used without a cast, it is unpacked first.
    for packed in (key for key, x in inputs.items() if isinstance(x, Packed)):
        text = re.sub(rf"\b{packed}\b", f"unpacked({packed})", text)
    body = "\n  ".join(python_of(text))
    scope = names_for(first.unpacked() if isinstance(first, Packed) else first)
    exec(f"def corpus_function({', '.join(inputs)}):\n  {body}\n", scope)
    corpus_function = scope["corpus_function"]

    def run(*values):
        result = corpus_function(*values)
        return tuple(x.contiguous() for x in (result if isinstance(result, tuple) else (result,)))

    return run


def read_corpus(path, chosen):
    functions = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.strip() or line.startswith("#"):
                continue
            name, text, _, bench = (part.strip() for part in line.split("|"))
            if not chosen or name in chosen:
                functions.append((name, text, bench.split()))
    return functions


def read_drawn(path, chosen):
    """The functions of a sweep, and the rows of what it measured."""
    with open(path, encoding="utf-8") as file:
        cases = [case for case in json.load(file)["cases"] if not chosen or case["case"] in chosen]
    functions = [(case["case"], case["text"], case["arguments"]) for case in cases]
    rows = [{"case": case["case"], "peer": "kiln", "skipped": "refused: " + case["refused"]}
            if "refused" in case else dict(case, peer="kiln")
            for case in cases if "refused" in case or "microseconds" in case]
    return functions, rows


def arguments_of(specs, n):
    arguments = {}
    for spec in specs:
        name, dtype, shape = re.match(r"(\w+)=(\w+)\[(.*)\]", spec).groups()
        arguments[name] = (dtype, [n if extent == "N" else int(extent) for extent in shape.split(",")])
    return arguments


def bytes_of(dtype, shape):
    size = BITS.get(dtype, 8)
    for extent in shape:
        size *= extent
    return (size + 7) // 8


def tensor(dtype, shape, device, generator):
    if dtype in ("u4", "i4"):
        packed = shape[:-1] + [(shape[-1] + 1) // 2]
        if shape[-1] == 1:  # one in a byte of its own, which reads no more than it has to
            data = torch.randint(0, 16, shape, dtype=torch.uint8, device=device, generator=generator)
            return data.to(torch.int32)
        data = torch.randint(0, 256, packed, dtype=torch.uint8, device=device, generator=generator)
        return Packed(data, dtype == "i4")
    if dtype == "bool":
        return torch.randint(0, 2, shape, device=device, generator=generator).bool()
    if not DTYPES[dtype].is_floating_point:
        return torch.randint(0, 100, shape, dtype=DTYPES[dtype], device=device, generator=generator)
    count = math.prod(shape)  # of numbers that repeat: a CPU takes seconds to draw them all
    values = torch.empty(min(count, 1 << 22), dtype=torch.float32, device=device)
    values = values.normal_(0, 1, generator=generator).abs_().add_(0.25).to(DTYPES[dtype])
    return values.repeat(-(-count // values.numel()))[:count].reshape(shape)


def inputs_of(specs, options):
    """As many rows as make the argument that grows fastest the size that was asked for."""
    few, more = (arguments_of(specs, n) for n in (2, 4))
    step = max(bytes_of(*more[name]) - bytes_of(*few[name]) for name in few) // 2
    types = arguments_of(specs, max(1, (options.mebibytes << 20) // max(1, step)))
    generator = torch.Generator(device=options.device).manual_seed(1)
    return types, {name: tensor(*types[name], options.device, generator) for name in types}


def compiled(function, inputs):
    """torch.compile sees tensors only: a packed one is given as its bytes."""
    kinds = [x.signed if isinstance(x, Packed) else None for x in inputs.values()]

    def of_tensors(*data):
        return function(*[x if kind is None else Packed(x, kind) for x, kind in zip(data, kinds)])

    torch._dynamo.reset()
    call = torch.compile(of_tensors, dynamic=False)
    data = [x.data if isinstance(x, Packed) else x for x in inputs.values()]
    return lambda: call(*data)


def call_of(peer, text, inputs):
    function = function_of(text, inputs)
    return compiled(function, inputs) if peer == "compile" else lambda: function(*inputs.values())


def time_us(call, options):
    """Microseconds of a call, the median of samples of some milliseconds each."""

    def sample(calls):
        if options.device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(calls):
                call()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) * 1e3 / calls
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) * 1e6 / calls

    sample(2)
    calls = max(1, min(10, int(5e3 / sample(1))))
    return statistics.median(sample(calls) for _ in range(options.samples))


@torch.no_grad()
def measure(name, text, specs, options, copy):
    types, inputs = inputs_of(specs, options)
    for peer in options.peers:
        row = {"case": name, "peer": peer}
        try:
            begin = time.perf_counter()
            call = call_of(peer, text, inputs)
            row["bytes"] = sum(bytes_of(*argument) for argument in types.values())
            row["bytes"] += sum(value.numel() * value.element_size() for value in call())
            row["first_call_s"] = round(time.perf_counter() - begin, 2)
            row["microseconds"] = time_us(call, options)
            row["fraction_of_copy"] = row["bytes"] / row["microseconds"] / copy
        except Exception as error:  # what a peer cannot do must not end the run
            row["skipped"] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        yield row


@torch.no_grad()
def compile_ahead(functions, options):
    """Leaves the code of the functions in torch.compile's cache; what fails is told by `measure`."""
    for _, text, specs in functions:
        try:
            call_of("compile", text, inputs_of(specs, options)[1])()
        except Exception:
            pass
        if options.device == "cuda":
            torch.cuda.empty_cache()


def start_workers(functions, options):
    """Processes that compile, each its share of the functions."""
    workers = []
    environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="1")
    for k in range(min(options.workers, len(functions))):
        command = [sys.executable, os.path.abspath(__file__), "--compile-only", "--device",
                   options.device, "--mebibytes", str(options.mebibytes)]
        command += ["--drawn", options.drawn] if options.drawn else ["--corpus", options.corpus]
        command += [name for name, _, _ in functions[k::options.workers]]
        workers.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True))
    return workers


def wait_for(workers, deadline):
    for worker in workers:
        try:
            worker.wait(timeout=max(0.0, deadline - time.perf_counter()))
        except subprocess.TimeoutExpired:
            os.killpg(worker.pid, signal.SIGKILL)  # with the compilers that it started
            worker.wait()


def kiln_rows(functions, options):
    command = [options.kiln, "bench", "--corpus", options.corpus, "--json", "--samples", str(options.samples),
               "--size", str(options.mebibytes), "--device", options.device]
    command += [name for name, _, _ in functions]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return [dict(case, peer="kiln") for case in json.loads(finished.stdout)["cases"]]
    except json.JSONDecodeError:
        return [{"case": "all", "peer": "kiln", "skipped": finished.stderr.strip()[:160]}]


class Report:
    """The rows so far, on the screen and in a file."""

    def __init__(self, options, copy):
        self.options, self.copy, self.rows = options, copy, []

    def add(self, row):
        self.rows.append(row)
        told = row.get("skipped") or f"{row['microseconds']:10.1f} us  {row['fraction_of_copy']:.3f}"
        print(f"{row['case']:24} {row['peer']:8} {told}", flush=True)
        if not self.options.json:
            return
        report = {"device": self.options.device, "torch": torch.__version__,
                  "copy_gb_per_s": self.copy / 1e3, "rows": self.rows}
        with open(self.options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)

    def compare(self):
        """kiln's times beside torch.compile's, the worst first."""
        times = {(row["case"], row["peer"]): row for row in self.rows if "microseconds" in row}
        both = [case for case, peer in times if peer == "kiln" and (case, "compile") in times]
        ratio = {case: times[case, "compile"]["microseconds"] / times[case, "kiln"]["microseconds"]
                 for case in both}
        for case in sorted(both, key=ratio.get):
            same = times[case, "kiln"]["bytes"] == times[case, "compile"]["bytes"]
            print(f"{case:24} {ratio[case]:6.2f} x as fast as torch.compile"
                  + ("" if same else ", which moves another number of bytes"))
        if both:
            slower = sum(value < 1 / 1.05 for value in ratio.values())
            mean = math.exp(statistics.fmean(math.log(value) for value in ratio.values()))
            print(f"{len(both)} functions: geometric mean {mean:.3f} x; {slower} slower by more than 5 %")


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", metavar="FUNCTION", help="default: all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--mebibytes", type=int, default=0, help="default: 512, on the CPU 64 or twice its caches")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--peers", default="eager,compile", type=lambda text: text.split(","))
    parser.add_argument("--corpus", metavar="FILE", default=CORPUS, help="other functions")
    parser.add_argument("--drawn", metavar="FILE", help="the functions that a sweep has drawn")
    parser.add_argument("--part", default="1/1", help="only every Nth function, from the Ith")
    parser.add_argument("--workers", type=int, default=0, help="processes that compile beforehand")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds, then the rest is skipped")
    parser.add_argument("--kiln", metavar="PATH", help="the kiln tool, to be measured too")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--compile-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.mebibytes = options.mebibytes or default_mebibytes(options.device)
    return options


def main():
    begin = time.perf_counter()
    options = parse_options()
    part, parts = (int(number) for number in options.part.split("/"))
    if options.drawn:
        functions, measured = read_drawn(options.drawn, options.functions)
    else:
        functions, measured = read_corpus(options.corpus, options.functions), []
    functions = functions[part - 1::parts]
    if options.compile_only:
        compile_ahead(functions, options)
        return 0
    workers = start_workers(functions, options) if "compile" in options.peers else []
    wait_for(workers, begin + options.budget / 2)
    copy = copy_speed(options.device, options.mebibytes, options.samples)
    print(f"copy {copy / 1e3:.0f} GB/s, after {time.perf_counter() - begin:.0f} s", flush=True)
    report = Report(options, copy)
    if options.kiln and not options.drawn:
        measured = kiln_rows(functions, options)
    names = {name for name, _, _ in functions}
    for row in measured:
        if row["case"] in names or row["case"] == "all":
            report.add(row)
    for name, text, specs in functions:
        if time.perf_counter() - begin > options.budget:
            report.add({"case": name, "peer": "all", "skipped": "out of time"})
            continue
        for row in measure(name, text, specs, options, copy):
            report.add(row)
        if options.device == "cuda":
            torch.cuda.empty_cache()
    report.compare()
    return 0


if __name__ == "__main__":
    sys.exit(main())
