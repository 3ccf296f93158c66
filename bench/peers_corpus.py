#!/usr/bin/env python3
"""What PyTorch takes for the functions of bench/corpus/functions.txt: eager and torch.compile.

The text of a function is Python, so each is run as it stands, with the names of kiln's language bound
to PyTorch. Sizes are those of `kiln bench --corpus`; a time is a fraction of a copy, measured in the
same run, that moves what the function has to move: every input read and every output written once.

    bench/peers_corpus.py [--device cuda|cpu] [--peers NAME,NAME] [--mebibytes N] [--samples N]
                          [--kiln PATH] [--json FILE] [FUNCTION ...]
"""

import argparse
import json
import os
import re
import subprocess
import sys

import torch

from peers import copy_speed, time_us

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "functions.txt")
DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "i64": torch.int64, "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
    "f8e4m3": torch.float8_e4m3fn,
}
BITS = {"f64": 64, "i64": 64, "f32": 32, "i32": 32, "f16": 16, "bf16": 16, "u4": 4, "i4": 4}


class Packed:
    """u4 or i4: two of them in each byte of `data`, unpacked where they are used."""

    def __init__(self, data, signed):
        self.data, self.signed = data, signed

    def unpacked(self):
        low, high = self.data & 15, self.data >> 4
        values = torch.stack((low, high), dim=-1).flatten(-2).to(torch.int32)
        return ((values ^ 8) - 8) if self.signed else values


def wide(x):
    return x.unpacked() if isinstance(x, Packed) else x


def cast(dtype):
    return lambda x: wide(x).to(dtype)


def reduction(function):
    return lambda x, *axes: function(x, dim=list(axes) if axes else None, keepdim=True)


def over_axes(function):
    """Of torch's that take one axis: one after the other."""

    def run(x, *axes):
        for axis in axes or range(x.dim()):
            x = function(x, dim=axis, keepdim=True)
        return x

    return run


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(torch.mean(x.float() ** 2, -1, keepdim=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    x = x.float()
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight.float(), bias.float(), eps)


def scalar_where(condition, a, b):
    like = a if torch.is_tensor(a) else b
    as_tensor = lambda v: v if torch.is_tensor(v) else torch.full((), v, dtype=like.dtype, device=like.device)
    return torch.where(condition, as_tensor(a), as_tensor(b))


def reshape(x, *extents):
    return x.reshape([x.shape[k] if extent == 0 else extent for k, extent in enumerate(extents)])


def names_for(first):
    functional = torch.nn.functional
    plain = ["exp", "log", "log10", "sqrt", "rsqrt", "tanh", "sigmoid", "abs", "round", "sin", "cos"]
    names = {name: getattr(torch, name) for name in plain}
    names.update({dtype: cast(torch_dtype) for dtype, torch_dtype in DTYPES.items()})
    names.update(
        sum=reduction(torch.sum), mean=reduction(torch.mean), max=reduction(torch.amax),
        min=reduction(torch.amin), softmax=lambda x, axis: torch.softmax(x, axis),
        silu=functional.silu, gelu_tanh=lambda x: functional.gelu(x, approximate="tanh"),
        mish=functional.mish, softplus=functional.softplus, rms_norm=rms_norm, layer_norm=layer_norm,
        squared_relu=lambda x: torch.relu(x) ** 2, where=scalar_where, inf=float("inf"),
        clip=torch.clamp, maximum=lambda x, y: torch.clamp(x, min=y) if not torch.is_tensor(y)
        else torch.maximum(x, y),
        uniform=lambda seed, offset: torch.rand(first.shape, device=first.device),
        reshape=reshape, expand_dims=torch.unsqueeze, squeeze=torch.squeeze, swapaxes=torch.swapaxes,
        transpose=lambda x, *axes: x.permute(*(axes or reversed(range(x.dim())))),
        stack=lambda axis, *parts: torch.stack(parts, axis),
        concat=lambda axis, *parts: torch.cat(parts, axis),
    )
    return names


def python_of(text):
    """A def from the statements, the last of which is what it returns."""
    statements = [statement.strip() for statement in text.split(";") if statement.strip()]
    match = re.match(r"^(\w+) = (?!=)(.*)$", statements[-1])
    statements[-1] = "return " + (match.group(2) if match else statements[-1])
    return statements


def function_of(text, arguments, first):
    body = "\n  ".join(python_of(text))
    scope = names_for(first)
    exec(f"def corpus_function({', '.join(arguments)}):\n  {body}\n", scope)
    return scope["corpus_function"]


def read_corpus(chosen):
    functions = []
    with open(CORPUS, encoding="utf-8") as file:
        for line in file:
            if not line.strip() or line.startswith("#"):
                continue
            name, text, _, bench = (part.strip() for part in line.split("|"))
            if not chosen or name in chosen:
                functions.append((name, text, bench.split()))
    return functions


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
    values = torch.empty(shape, dtype=torch.float32, device=device)
    return values.normal_(0, 1, generator=generator).abs_().add_(0.25).to(DTYPES[dtype])


def measure(name, text, specs, options, copy):
    size = options.mebibytes << 20
    few, more = (arguments_of(specs, n) for n in (2, 4))
    step = max(bytes_of(*more[name]) - bytes_of(*few[name]) for name in few) // 2
    n = max(1, size // max(1, step))
    types = arguments_of(specs, n)
    generator = torch.Generator(device=options.device).manual_seed(1)
    inputs = {name: tensor(*types[name], options.device, generator) for name in types}
    first = max((wide(x) for x in inputs.values()), key=lambda x: x.numel())
    operands = inputs
    # Where a packed operand is used without a cast, it is unpacked first.
    for packed in (key for key, x in inputs.items() if isinstance(x, Packed)):
        text = re.sub(rf"\b{packed}\b", f"unpacked({packed})", text)
    rows = []
    for peer in options.peers.split(","):
        row = {"case": name, "peer": peer}
        try:
            function = function_of(text, list(operands), first)
            function.__globals__["unpacked"] = lambda x: x.unpacked()
            if peer == "compile":
                torch._dynamo.reset()
                function = torch.compile(function, dynamic=False)
            result = function(*operands.values())
            results = result if isinstance(result, tuple) else (result,)
            moved = sum(bytes_of(*argument) for argument in types.values())
            moved += sum(value.numel() * value.element_size() for value in results)
            del result, results
            row["microseconds"] = time_us(lambda: function(*operands.values()), options.device,
                                          options.samples)
            row["fraction_of_copy"] = moved / row["microseconds"] / copy
        except Exception as error:  # what a peer cannot do must not end the run
            row["skipped"] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        rows.append(row)
    return rows


def kiln_rows(options):
    command = [options.kiln, "bench", "--corpus", CORPUS, "--json", "--samples", str(options.samples),
               "--size", str(options.mebibytes), "--device", options.device, *options.functions]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return [dict(case, peer="kiln") for case in report["cases"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", nargs="*")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--peers", default="eager,compile")
    parser.add_argument("--mebibytes", type=int, default=0)
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--kiln")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.mebibytes = options.mebibytes or (512 if options.device == "cuda" else 64)
    copy = copy_speed(options.device, options.mebibytes, options.samples)
    rows = kiln_rows(options) if options.kiln else []
    for name, text, specs in read_corpus(options.functions):
        rows += measure(name, text, specs, options, copy)
    for row in rows:
        told = row.get("skipped") or f"{row['microseconds']:10.1f} us  {row['fraction_of_copy']:.3f}"
        print(f"{row['case']:24} {row['peer']:8} {told}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"device": options.device, "torch": torch.__version__, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
