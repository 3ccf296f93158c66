"""Judges every function that kiln and PyTorch both have by PyTorch's own samples (op_db: sample and
reference inputs, with their dtypes, extremal values and layouts), and writes the table op_db.md.

    python3 tests/src/python/op_db.py [--device cuda|cpu] [--samples N] [--ops NAME...]
                                      [--markdown FILE] [--json FILE]

PYTHONPATH must find kiln. A result agrees if torch.testing.assert_close, with its tolerance for the
dtype, says so, or if it is no further from the result in float64 than PyTorch's own.
"""

import argparse
import concurrent.futures
import itertools
import json
import math
import os
import re
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

import kiln  # noqa: E402

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.complex64]


VERDICTS = ("agree", "dtype", "differ", "refused", "other")


class Other(Exception):
    """A sample that asks for what kiln's function has no parameter for."""


def number(value):
    if isinstance(value, torch.Tensor) or isinstance(value, complex):
        raise Other
    return value


def literal(value):
    value = number(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise Other
    return f"({value!r})"


# ---- How a sample of PyTorch is written in kiln: (expression, operands) ---------------------------------


def unary(text):
    def write(sample):
        if sample.args or sample.kwargs:
            raise Other
        return text, [sample.input]

    return write


def binary(text, scaled=False):
    def write(sample):
        kwargs = dict(sample.kwargs)
        alpha = kwargs.pop("alpha", 1) if scaled else 1
        if len(sample.args) != 1 or kwargs:
            raise Other
        y = "y" if alpha == 1 else f"y * {literal(alpha)}"
        return text.replace("y", y) if alpha != 1 else text, [sample.input, sample.args[0]]

    return write


def with_numbers(function, *names, defaults=()):
    """A function whose further parameters are numbers, by position or name."""

    def write(sample):
        kwargs = {key: value for key, value in sample.kwargs.items() if key != "inplace"}
        values = list(sample.args)
        for name, default in itertools.zip_longest(names[len(values):], defaults[len(values):]):
            values.append(kwargs.pop(name, default))
        if kwargs:
            raise Other
        return f"{function}(" + ", ".join(["x", *map(literal, values)]) + ")", [sample.input]

    return write


def div(sample):
    kwargs = dict(sample.kwargs)
    mode = kwargs.pop("rounding_mode", None)
    if kwargs or len(sample.args) != 1:
        raise Other
    text = {None: "x / y", "trunc": "trunc(x / y)", "floor": "x // y"}[mode]
    if mode == "trunc" and not all(torch.is_tensor(x) and x.is_floating_point() for x in (sample.input, *sample.args)):
        raise Other
    return text, [sample.input, sample.args[0]]


def gelu(sample):
    mode = sample.kwargs.get("approximate", "none")
    return ("gelu(x)" if mode == "none" else "gelu_tanh(x)"), [sample.input]


def softplus(sample):
    beta, threshold = literal(sample.kwargs.get("beta", 1)), literal(sample.kwargs.get("threshold", 20))
    return f"where(x * {beta} > {threshold}, x, softplus(x * {beta}) / {beta})", [sample.input]


def logit(sample):
    if sample.kwargs.get("eps") is not None or any(value is not None for value in sample.args):
        raise Other
    return "logit(x)", [sample.input]


def where(sample):  # op_db gives (x, condition, y)
    return "where(c, x, y)", [sample.args[0], sample.input, sample.args[1]]


def clamp(sample):
    low, high = (list(sample.args) + [sample.kwargs.get("min"), sample.kwargs.get("max")])[:2]
    if low is not None and high is not None:
        return "clip(x, low, high)", [sample.input, low, high]
    return ("maximum(x, y)", [sample.input, low]) if low is not None else ("minimum(x, y)", [sample.input, high])


def lerp(sample):
    return "lerp(x, y, w)", [sample.input, *sample.args]


def round_(sample):
    if sample.args or sample.kwargs.get("decimals", 0):
        raise Other
    return "round(x)", [sample.input]


NAMES = {torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
         torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32",
         torch.float64: "f64", torch.complex64: "c64"}


def reduction(function, *, one=False, ord_first=False, correction=False):
    def write(sample):
        args, kwargs = list(sample.args), dict(sample.kwargs)
        if ord_first and (args.pop(0) if args else kwargs.pop("ord", 2)) != 2:
            raise Other
        if kwargs.pop("mask", None) is not None or kwargs.pop("weight", None) is not None:
            raise Other
        dim = args.pop(0) if args else kwargs.pop("dim", kwargs.pop("axis", None))
        if correction:
            if isinstance(dim, bool):
                raise Other
            unbiased = args.pop(0) if args else kwargs.pop("unbiased", None)
            if kwargs.pop("correction", 1 if unbiased is None else int(unbiased)) != 0:
                raise Other
        kwargs.pop("keepdim", args.pop(0) if args else None)
        dtype = kwargs.pop("dtype", None)
        if kwargs or args:
            raise Other
        axes = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
        if one and len(axes) != 1:
            raise Other
        if sample.input.dim() == 0 and axes:
            raise Other
        if not one and not axes:
            axes = range(sample.input.dim())
        if isinstance(dim, (tuple, list)) and not dim and sample.input.dim():
            raise Other
        x = "x" if dtype is None else f"{NAMES[dtype]}(x)"
        return f"{function}(" + ", ".join([x, *(str(axis) for axis in axes)]) + ")", [sample.input]

    return write


def normalise(function):
    def write(sample):
        shape, weight, bias, eps = (list(sample.args) + [None] * 4)[:4] if function == "layer_norm" else (
            (list(sample.args) + [None] * 2)[:2] + [None] + (list(sample.args) + [None] * 3)[2:3])
        eps = sample.kwargs.get("eps", eps)
        weight, bias = sample.kwargs.get("weight", weight), sample.kwargs.get("bias", bias)
        if len(shape) != 1:
            raise Other
        if eps is None:
            eps = 1e-5 if function == "layer_norm" else torch.finfo(sample.input.dtype).eps
        eps = literal(eps)
        if weight is None and bias is None:
            return f"{function}(x, {eps})", [sample.input]
        if function == "rms_norm":
            return f"rms_norm(x, w, {eps})", [sample.input, weight]
        if weight is None or bias is None:
            raise Other
        return f"layer_norm(x, w, b, {eps})", [sample.input, weight, bias]

    return write


def listed(function):
    def write(sample):
        axis = sample.args[0] if sample.args else sample.kwargs.get("dim", 0)
        names = [f"x{i}" for i in range(len(sample.input))]
        return f"{function}({axis}, {', '.join(names)})", list(sample.input)

    return write


def moved(function):
    def write(sample):
        values = sample.args[0] if len(sample.args) == 1 and not isinstance(sample.args[0], int) else sample.args
        if sample.kwargs or not all(isinstance(value, int) for value in values) or not len(values):
            raise Other
        if function == "swapaxes" and sample.input.dim() == 0:
            raise Other
        return f"{function}(x, {', '.join(map(str, values))})", [sample.input]

    return write


def narrow(sample):
    dim, start, length = sample.args
    if sample.kwargs or not all(isinstance(value, int) for value in sample.args):
        raise Other
    dim, start = dim % sample.input.dim(), start % max(sample.input.size(dim), 1)
    return f"slice(x, {dim}, {start}, {start + length})", [sample.input]


def take(sample):
    dim, index = sample.args
    if sample.input.dim() == 0 or index.dim() == 0 or bool((index < 0).any()):  # kiln gives zero outside
        raise Other
    return f"take(x, i, {dim})", [sample.input, index]


def embedding(sample):  # op_db gives (weight, indices)
    if {"max_norm", "scale_grad_by_freq"} & {key for key, value in sample.kwargs.items() if value}:
        raise Other
    return "take(x, i, 0)", [sample.input, sample.args[0]]


def put(sample):
    dim, index, values = sample.args
    if sample.input.dim() == 0 or index.dim() == 0 or index.unique().numel() != index.numel():
        raise Other
    return f"put(x, i, y, {dim})", [sample.input.clone(), index, values]


UNARY = {name: name for name in (
    "abs sign square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh "
    "tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma floor ceil trunc isnan isinf isfinite logical_not "
    "bitwise_not real imag conj").split()}
UNARY |= {"neg": "neg", "special.ndtr": "ndtr", "nn.functional.relu": "relu", "nn.functional.relu6": "relu6",
          "nn.functional.selu": "selu", "nn.functional.silu": "silu", "nn.functional.mish": "mish",
          "nn.functional.softsign": "softsign", "nn.functional.hardswish": "hardswish",
          "nn.functional.hardsigmoid": "hardsigmoid", "nn.functional.tanhshrink": "tanhshrink"}
BINARY = {"mul": "x * y", "floor_divide": "x // y", "remainder": "x % y", "fmod": "fmod(x, y)", "pow": "x ** y",
          "__rpow__": "y ** x", "maximum": "maximum(x, y)", "minimum": "minimum(x, y)", "fmax": "fmax(x, y)",
          "fmin": "fmin(x, y)", "atan2": "atan2(x, y)", "hypot": "hypot(x, y)", "logaddexp": "logaddexp(x, y)",
          "copysign": "copysign(x, y)", "nextafter": "nextafter(x, y)", "logical_and": "logical_and(x, y)",
          "logical_or": "logical_or(x, y)", "logical_xor": "logical_xor(x, y)", "bitwise_and": "x & y",
          "bitwise_or": "x | y", "bitwise_xor": "x ^ y", "bitwise_left_shift": "x << y",
          "bitwise_right_shift": "x >> y", "eq": "x == y", "ne": "x != y", "lt": "x < y", "le": "x <= y",
          "gt": "x > y", "ge": "x >= y"}
REDUCTIONS = {"sum": "sum", "mean": "mean", "prod": "prod", "amax": "max", "amin": "min", "any": "any", "all": "all",
              "argmax": "argmax", "argmin": "argmin", "logsumexp": "logsumexp", "count_nonzero": "count_nonzero"}
ALONG_ONE = {"softmax": "softmax", "log_softmax": "log_softmax", "cumsum": "cumsum", "cumprod": "cumprod",
             "cummax": "cummax"}

WRITERS = {name: unary(f"{own}(x)") for name, own in UNARY.items()}
WRITERS |= {name: binary(text) for name, text in BINARY.items()}
WRITERS |= {name: reduction(own) for name, own in REDUCTIONS.items()}
WRITERS |= {name: reduction(own, one=True) for name, own in ALONG_ONE.items()}
WRITERS |= {
    "add": binary("x + y", scaled=True), "sub": binary("x - (y)", scaled=True), "div": div,
    "round": round_, "nn.functional.gelu": gelu, "nn.functional.softplus": softplus, "logit": logit,
    "nn.functional.leaky_relu": with_numbers("leaky_relu", "negative_slope", defaults=(0.01,)),
    "nn.functional.elu": with_numbers("elu", "alpha", defaults=(1.0,)),
    "nn.functional.celu": with_numbers("celu", "alpha", defaults=(1.0,)),
    "nan_to_num": unary("nan_to_num(x)"), "where": where, "clamp": clamp, "lerp": lerp,
    "var": reduction("var", correction=True), "std": reduction("std", correction=True),
    "linalg.vector_norm": reduction("norm2", ord_first=True),
    "nn.functional.layer_norm": normalise("layer_norm"), "nn.functional.rms_norm": normalise("rms_norm"),
    "cat": listed("concat"), "stack": listed("stack"), "reshape": moved("reshape"), "permute": moved("transpose"),
    "swapaxes": moved("swapaxes"), "transpose": moved("swapaxes"), "narrow": narrow, "index_select": take,
    "nn.functional.embedding": embedding, "index_copy": put,
    "unsqueeze": moved("expand_dims"), "squeeze": moved("squeeze"),
}


# ---- Judging ---------------------------------------------------------------------------------------------


def kilns(text, operands):
    names = []
    for word in ("x", "i", "y", "c", "w", "b", "low", "high", *(f"x{i}" for i in range(20))):
        if word in re.findall(r"[a-z_]\w*", text) and word not in names:
            names.append(word)
    first = {"where(c, x, y)": ["c", "x", "y"]}.get(text, names)
    make = kiln.program if text.startswith((
        "reshape", "transpose", "swapaxes", "concat", "stack", "expand_dims", "squeeze", "slice", "take", "put",
    )) else kiln.fuse
    values = [operand.resolve_conj() if isinstance(operand, torch.Tensor) else operand for operand in operands]
    return make(text, name="op_db", arguments=first)(*values)


def widened(value):
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    if isinstance(value, torch.Tensor) and value.is_complex():
        return value.to(torch.complex128)
    if isinstance(value, (list, tuple)):
        return type(value)(widened(one) for one in value)
    return value


def in_double(op, sample):
    """PyTorch's result in double precision; None where it has none."""
    try:
        result = op(widened(sample.input), *widened(sample.args),
                    **{key: widened(value) for key, value in sample.kwargs.items() if key != "dtype"})
    except Exception:
        return None
    return result[0] if isinstance(result, tuple) else result


def compare(got, expected, exact):
    """The kind of the verdict and why: "agree", "dtype" (the values agree in another dtype) or "differ"."""
    got, expected = got.detach(), expected.detach().resolve_conj()
    if got.numel() != expected.numel():
        return "differ", f"shape {tuple(got.shape)} instead of {tuple(expected.shape)}"
    got = got.reshape(expected.shape)
    kind = "agree" if got.dtype == expected.dtype else "dtype"
    note = "" if kind == "agree" else f"gives {NAMES.get(got.dtype, got.dtype)}, not {NAMES.get(expected.dtype, expected.dtype)}"
    if got.is_complex() and not expected.is_complex():
        return "differ", note
    relative, absolute = torch.testing._comparison.default_tolerances(expected.dtype)
    fine = torch.isclose(got.to(expected.dtype), expected, relative, absolute, equal_nan=True)
    if not bool(fine.all()) and exact is not None:
        exact = exact.detach().reshape(expected.shape)
        a, b = widened(got), widened(expected)
        distance, theirs = (a - exact).abs(), (b - exact).abs()
        # No further off, or right where PyTorch's own result overflows or is NaN.
        fine |= (distance <= theirs) | (a == exact) | (a.isnan() & exact.isnan()) | ~torch.isfinite(theirs)
    if bool(fine.all()):
        return kind, note
    at = (~fine).flatten().nonzero()[0].item()
    first = f"{got.flatten()[at].item():.6g} instead of {expected.flatten()[at].item():.6g}"
    return "differ", f"{note}; {first}" if note else first


def judge(op, dtype, device, limit):
    row = dict.fromkeys(VERDICTS, 0) | {"why": [], "text": "", "functions": []}
    samples = itertools.chain(op.sample_inputs(device, dtype), op.reference_inputs(device, dtype))
    seen = 0
    for sample in samples:
        if seen >= limit:
            break
        try:
            text, operands = WRITERS[op.name](sample)
        except Other:
            row["other"] += 1
            continue
        if not any(isinstance(operand, torch.Tensor) for operand in operands):
            row["other"] += 1
            continue
        if any(isinstance(operand, complex) for operand in operands):
            row["other"] += 1
            continue
        seen += 1
        row["text"] = row["text"] or text
        row["functions"] += re.findall(r"[a-z_]\w*(?=\()", text)
        # A tensor of the host without axes is a number to PyTorch.
        operands = [operand.item() if isinstance(operand, torch.Tensor) and operand.device.type != torch.device(device).type
                    else operand for operand in operands]
        try:
            expected = op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            continue
        expected = expected[0] if isinstance(expected, tuple) else expected
        try:
            got = kilns(text, operands)
        except (kiln.Error, BufferError) as error:
            row["refused"] += 1
            row["why"].append(f"{text}: {str(error).splitlines()[0][:160]}")
            continue
        kind, why = compare(got, expected, in_double(op, sample))
        row[kind] += 1
        if why:
            row["why"].append(f"{text}: {why[:160]}")
    row["why"] = sorted(set(row["why"]))[:6]
    row["functions"] = sorted(set(row["functions"]))
    return row


# ---- The table -------------------------------------------------------------------------------------------

INTEGERS = {"u8", "i8", "i16", "i32", "i64"}
# What kiln defines otherwise: functions, dtypes (None: all), and how.
DEFINED = [
    ({"sum", "prod", "cumsum", "cumprod"}, {"u8"}, "sums and products of unsigned integers are u64, as in NumPy"),
    ({"cumsum", "cumprod", "prod"}, INTEGERS | {"bool"}, "sums and products of integers are i64, also after a cast"),
    ({"all", "any"}, {"u8"}, "the result is bool, as in NumPy; PyTorch keeps u8"),
    ({"nan_to_num"}, INTEGERS | {"bool"}, "the result of integers is f32"),
    ({"abs", "sign", "square", "logit", "nn.functional.softsign", "div"}, {"bool"}, "a bool is no number: an error that asks for a cast"),
    ({"cat"}, None, "operands have one rank: PyTorch takes an empty one of rank 1 too"),
    ({"squeeze"}, None, "an axis that has not one element is an error, as in NumPy; PyTorch leaves it"),
    ({"sign"}, {"f16", "bf16", "f32", "f64"}, "of NaN it is NaN, as in NumPy; PyTorch gives 0"),
    ({"nn.functional.softsign"}, {"i8"}, "-128 / (1 + 128); PyTorch's abs(-128) is -128"),
    ({"add", "sub"}, {"u8"}, "a number that the dtype does not hold, -3, is an error that asks for a cast"),
    ({"where"}, INTEGERS | {"bool"}, "two integers without a partner are i32; PyTorch's are i64"),
    ({"var", "std", "linalg.vector_norm"}, {"c64"}, "of squares, not of absolute squares: take them of abs(x)"),
]


def note_of(name, dtype, row):
    if "broken" in row:
        return "not judged: the samples could not be made or written"
    for names, dtypes, text in DEFINED:
        if name.split()[0] in names and (dtypes is None or dtype in dtypes):
            return text
    if row["refused"] and not row["differ"] and dtype == "c64":
        return "of real numbers only: an error for c64"
    return "; ".join(row["why"][:2]) or "see the script's JSON"


def write(path, results):
    with open(path, "w") as file:
        file.write(markdown(results["torch"], results["device"], results["total"], results["table"]))


def markdown(torch_version, device, total, table):
    lines = [
        "# kiln judged by PyTorch's op_db", "",
        f"Every function that kiln and PyTorch both have, on the sample and reference inputs of PyTorch {torch_version}'s",
        f"`op_db` (dtypes, extremal values, layouts that are not contiguous, numbers), on {device}. Written by",
        "`tests/src/python/op_db.py`.", "",
        "A result agrees if `torch.testing.assert_close` would pass it with its tolerance for the dtype, or where it is no",
        "further from PyTorch's result in double precision than PyTorch's own. *Other dtype*: the values agree. *Refused*:",
        "kiln raised an error. *Not written*: samples with parameters that kiln's function has not.", "",
        f"{total['agree']} agree, {total['dtype']} agree in another dtype, {total['differ']} differ, {total['refused']} were refused,",
        f"{total['other']} not written.", "",
        "| PyTorch | kiln | dtypes | agree | other dtype | differ | refused | not written |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, row in sorted(table.items()):
        text = next((one["text"] for one in row.values() if one["text"]), "")
        counts = " | ".join(str(sum(one[key] for one in row.values())) for key in VERDICTS)
        code = text.replace("|", "\\|")
        lines.append(f"| {name} | `{code}` | {' '.join(row)} | {counts} |")
    lines += ["", "## What is not the same, and why", ""]
    reasons = {}
    for name, row in sorted(table.items()):
        for dtype, one in row.items():
            if one["dtype"] or one["differ"] or one["refused"] or "broken" in one:
                reasons.setdefault((name, note_of(name, dtype, one)), []).append(dtype)
    lines += [f"* `{name}` ({' '.join(dtypes)}): {text}" for (name, text), dtypes in reasons.items()]
    judged = {word for row in table.values() for one in row.values() for word in one["functions"]} | {
              "add", "sub", "mul", "div", "floor_divide", "remainder", "power", "neg", "equal", "not_equal", "less",
              "less_equal", "greater", "greater_equal", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift"}
    rest = sorted(set(kiln._kiln.function_names()) - judged)
    lines += ["", "## Functions of kiln that op_db does not judge", "", ", ".join(f"`{name}`" for name in rest), ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--ops", nargs="*")
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    parser.add_argument("--read", help="write --markdown from the --json of an earlier run, and judge nothing")
    options = parser.parse_args()

    if options.read:
        with open(options.read) as file:
            earlier = json.load(file)
        write(options.markdown, earlier)
        return
    chosen = [op for op in op_db if op.name in WRITERS and (not options.ops or op.name in options.ops)]
    tasks = []
    for op in chosen:
        known = op.supported_dtypes(torch.device(options.device).type)
        tasks += [(op, dtype) for dtype in DTYPES if dtype in known]

    def run(task):
        op, dtype = task
        try:
            with torch.no_grad():
                return judge(op, dtype, options.device, options.samples)
        except Exception as error:  # op_db's own trouble on this machine
            return dict.fromkeys(VERDICTS, 0) | {"why": [], "text": "", "functions": [], "broken": repr(error)[:200]}

    with concurrent.futures.ThreadPoolExecutor(options.threads) as pool:
        rows = list(pool.map(run, tasks))
    table = {}
    for (op, dtype), row in zip(tasks, rows):
        table.setdefault(f"{op.name} {op.variant_test_name}".strip(), {})[NAMES[dtype]] = row
    total = {key: sum(row[key] for row in rows) for key in VERDICTS}
    print(total)
    device = torch.cuda.get_device_name() if options.device == "cuda" else "the CPU"
    results = {"torch": torch.__version__, "device": device, "total": total, "table": table}
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    if options.markdown:
        write(options.markdown, results)


if __name__ == "__main__":
    main()
