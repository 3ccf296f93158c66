#!/usr/bin/env python3
"""Tokens per second of the decoder and of llama.cpp, on random weights of one shape.

Runs `decode`, writes a GGUF file of random Q4_0 weights of that shape (4.5 bits for each weight, as
the decoder's), and runs llama.cpp's llama-bench on it with flash attention, in the same session. Where
llama-bench is not installed only the decoder's numbers are printed, and the reason.

    bench/decode/llama_bench.py --decode build/bench/bench/decode/decode --shape 8b --device cuda
"""
import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

F32, Q4_0 = 0, 2  # tensor types of GGUF
ALIGNMENT = 32


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def metadata(model):
    """Pairs of a llama model without a vocabulary."""
    numbers = {
        "llama.block_count": model["layers"],
        "llama.context_length": 8192,
        "llama.embedding_length": model["width"],
        "llama.feed_forward_length": model["hidden"],
        "llama.attention.head_count": model["heads"],
        "llama.attention.head_count_kv": model["kv_heads"],
        "llama.rope.dimension_count": model["width"] // model["heads"],
        "llama.vocab_size": model["vocabulary"],
        "general.file_type": 2,
    }
    texts = {"general.architecture": "llama", "general.name": "random", "tokenizer.ggml.model": "no_vocab"}
    pairs = [string(key) + struct.pack("<I", 8) + string(value) for key, value in texts.items()]
    pairs += [string(key) + struct.pack("<II", 4, value) for key, value in numbers.items()]
    pairs.append(string("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5))
    return pairs


def tensors(model):
    """Name, extents (the innermost first) and type of each."""
    width, hidden, vocabulary = model["width"], model["hidden"], model["vocabulary"]
    kv = width // model["heads"] * model["kv_heads"]
    yield "token_embd.weight", (width, vocabulary), Q4_0
    for i in range(model["layers"]):
        yield f"blk.{i}.attn_norm.weight", (width,), F32
        yield f"blk.{i}.ffn_norm.weight", (width,), F32
        for name, columns, rows in (("attn_q", width, width), ("attn_k", width, kv), ("attn_v", width, kv),
                                    ("attn_output", width, width), ("ffn_gate", width, hidden),
                                    ("ffn_up", width, hidden), ("ffn_down", hidden, width)):
            yield f"blk.{i}.{name}.weight", (columns, rows), Q4_0
    yield "output_norm.weight", (width,), F32
    yield "output.weight", (width, vocabulary), Q4_0


def elements(extents):
    count = 1
    for extent in extents:
        count *= extent
    return count


def size_of(extents, kind):
    """Q4_0 has 18 bytes for 32 numbers: a scale in f16 and a nibble for each."""
    return elements(extents) * 4 if kind == F32 else elements(extents) // 32 * 18


def write_gguf(path, model):
    listed = list(tensors(model))
    pairs = metadata(model)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(pairs)) + b"".join(pairs)
    offset = 0
    for name, extents, kind in listed:
        header += string(name) + struct.pack("<I", len(extents))
        header += struct.pack(f"<{len(extents)}Q", *extents) + struct.pack("<IQ", kind, offset)
        offset += -(-size_of(extents, kind) // ALIGNMENT) * ALIGNMENT
    one = struct.pack("<f", 1)
    scale = struct.pack("<e", (21.25 * model["width"]) ** -0.5)
    blocks = b"".join(scale + os.urandom(16) for _ in range(1 << 16))
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % ALIGNMENT))
        for _, extents, kind in listed:
            left = size_of(extents, kind)
            chunk = one * (1 << 16) if kind == F32 else blocks
            while left > 0:
                file.write(chunk[:left])
                left -= len(chunk)
            file.write(bytes(-size_of(extents, kind) % ALIGNMENT))


def llama_tokens(bench, path, options, position):
    command = [bench, "-m", path, "-p", "0", "-n", str(options.tokens), "-d", str(position), "-fa", "1",
               "-ngl", "0" if options.device == "cpu" else "99", "-o", "json"]
    if options.threads:
        command += ["-t", str(options.threads)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed)[0]["avg_ts"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--decode", required=True, help="the program decode of a build")
    parser.add_argument("--llama-bench", default=shutil.which("llama-bench"))
    parser.add_argument("--shape", default="8b")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--positions", default="128,1024")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, help="of the CPU, for both")
    parser.add_argument("--json", help="file to write")
    options = parser.parse_args()
    environment = dict(os.environ)
    if options.threads:
        environment["KILN_CPU_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as directory:
        own = os.path.join(directory, "decode.json")
        subprocess.run([options.decode, "--shape", options.shape, "--device", options.device, "--positions",
                        options.positions, "--tokens", str(options.tokens), "--json", own],
                       check=True, stdout=sys.stderr, env=environment)
        with open(own) as file:
            result = json.load(file)
        if options.llama_bench is None:
            print("llama-bench is not installed: only the decoder's numbers", file=sys.stderr)
        else:
            path = os.path.join(directory, "random.gguf")
            write_gguf(path, result["model"])
            for run in result["runs"]:
                run["llama_tokens_per_second"] = llama_tokens(options.llama_bench, path, options, run["position"])
    print(f"{'position':>8}  {'kiln':>8}  llama.cpp")
    for run in result["runs"]:
        theirs = run.get("llama_tokens_per_second")
        print(f"{run['position']:>8}  {run['tokens_per_second']:>8.1f}  {'' if theirs is None else f'{theirs:>9.1f}'}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
