#!/usr/bin/env python3
"""Has llama.cpp load what kullback writes, in every type, and compares what both make of the same file.

    tests/interop/gguf_in_llama_cpp.py build/kullback [--model smollm2-135m-instruct] [--keep FOLDER]

For each of F32, F16, BF16, Q8_0, Q4_0 and Q4_1: `kullback convert` writes the model, `kullback generate --logps` continues
a few texts greedily from the file, and llama.cpp (package llama-cpp-python) reads the same file and is asked for the
log-probabilities of the same tokens. The texts are tokenised by either program from the file's own vocabulary. What is compared:
 - the numbers in the file: those that llama.cpp's own package gguf makes of each tensor, and those that `kullback convert --type
   f32` makes of it, to the last bit;
 - log-probabilities. llama.cpp also rounds what is multiplied with the weights (not in F32; to float16 or bfloat16; with quantised
   weights to 8 bits, which moves single ones by some tenths of a nat): the largest difference may be so much, with quantised
   weights the mean one;
 - the likeliest token of every step, which must be the same wherever the second is further off than that.

Exit status 0 when all agree, 77 where a package is missing.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy
    from llama_cpp import Llama
except ImportError as missing:
    print(f"{missing} (pip install llama-cpp-python gguf): not tried")
    sys.exit(77)

TEXTS = ["The history of the sea is long, and", "Once upon a time there was a", "def fibonacci(n):\n    ", "Zwölf Boxkämpfer jagen 1234 Viktor",
         "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"]
# Nats by which a log-probability may differ at most, or on the mean.
TOLERANCE = {"f32": (0.001, 0.0001), "f16": (0.03, 0.003), "bf16": (0.3, 0.03), "q8_0": (1.5, 0.08), "q4_0": (1.5, 0.08), "q4_1": (1.5, 0.08)}


def run(program, *arguments):
    print("$ kullback", *arguments, flush=True)
    return subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True).stdout


def log_softmax(row):
    row = row.astype(numpy.float64)
    return row - row.max() - math.log(numpy.exp(row - row.max()).sum())


def same_numbers(file, whole):
    """Whether each tensor of `file` is, by llama.cpp's own account, what `whole` holds in float32."""
    theirs, ours = gguf.GGUFReader(str(file)), {t.name: t for t in gguf.GGUFReader(str(whole)).tensors}
    different = [t.name for t in theirs.tensors
                 if not numpy.array_equal(gguf.dequantize(t.data, t.tensor_type).ravel(), ours[t.name].data.ravel())]
    if different:
        print(f"  {file.name}: other numbers in {', '.join(different[:3])} and in all {len(different)}", file=sys.stderr)
    return not different and len(theirs.tensors) == len(ours)


def compare(file, ours, tolerances):
    model = Llama(str(file), n_ctx=512, logits_all=True, verbose=False, type_k=0, type_v=0)  # caches in float32, as ours
    tolerance, mean_tolerance = tolerances
    largest, total, steps, agreed, faults = 0.0, 0.0, 0, 0, 0
    for text, answer in zip(TEXTS, ours):
        prompt = model.tokenize(text.encode(), add_bos=False, special=True)
        model.reset()
        model.eval(prompt + answer["ids"])
        for step, (token, logp, top) in enumerate(zip(answer["ids"], answer["logps"], answer["top_logps"])):
            row = log_softmax(model.scores[len(prompt) + step - 1])
            difference = max(abs(row[token] - logp), *(abs(row[t] - value) for t, value in top[:2]))
            largest, total, steps = max(largest, difference), total + abs(row[token] - logp), steps + 1
            same = int(row.argmax()) == top[0][0]
            agreed += same
            clear = top[0][1] - top[1][1] > 2 * tolerance
            if difference > tolerance or (clear and not same):
                faults += 1
                print(f"  {text!r}, step {step}: token {token} has {logp:.4f} here and {row[token]:.4f} there", file=sys.stderr)
    print(f"  {file.name}: {steps} tokens, log-probabilities differ by {largest:.2g} at most, {total / steps:.2g} on the mean, "
          f"{agreed} of {steps} likeliest tokens agree")
    return faults == 0 and total / steps <= mean_tolerance


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--keep", help="write into this folder and leave it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        prompts = folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in TEXTS))
        agree = True
        for kind, tolerances in TOLERANCE.items():
            file = folder / f"model-{kind}.gguf"
            if not file.exists():
                run(options.program, "convert", options.model, file, "--type", kind)
            answers = run(options.program, "generate", "--model", file, "--prompts", prompts, "--raw", "--logps", "--top-logps", 4,
                          "--max-new-tokens", 16)
            ours = [json.loads(line) for line in answers.splitlines()]
            agree = compare(file, ours, tolerances) and agree
            whole = folder / "whole.gguf"
            run(options.program, "convert", file, whole, "--type", "f32")
            agree = same_numbers(file, whole) and agree
            whole.unlink()
            if not options.keep:
                file.unlink()
    print("all agree" if agree else "they do not agree")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
