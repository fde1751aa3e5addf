#!/usr/bin/env python3
"""Has transformers load what kullback writes of every family.

    tests/interop/architectures.py build/kullback [--keep FOLDER]

For each folder of fixtures/architectures: `kullback convert` writes it again, and transformers' logits of the copy must be
those of golden.json; adapters are merged. Exit status 0 when all agree, 77 where transformers is missing.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f"{missing} (pip install torch transformers): not tried")
    sys.exit(77)

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "architectures"


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True).stdout


@torch.no_grad()
def difference(model, golden):
    expected = torch.tensor(golden["logits"]["data"], dtype=torch.float64).reshape(golden["logits"]["shape"])
    logits = model(torch.tensor(golden["input_ids"])).logits.double()
    return ((logits - expected).abs() / expected.abs().clamp_min(1)).max().item()


def check_folder(program, name, out):
    golden = json.loads((FIXTURES / name / "golden.json").read_text())
    source, extra = FIXTURES / name, []
    if "base" in golden:
        source, extra = FIXTURES / name / golden["base"], ["--adapter", FIXTURES / name]
    run(program, "convert", source, out, *extra)
    # Eager attention is what the goldens were made with; the copy is float32.
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
    worst = difference(model, golden)
    print(f"{name}: transformers' logits of the copy differ by {worst:.1e}, tolerance {golden['tolerance']}")
    return worst <= golden["tolerance"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--keep", help="folder for what is written; default: a temporary one")
    chosen = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(chosen.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for fixture in sorted(path.name for path in FIXTURES.iterdir() if (path / "golden.json").exists()):
            if not check_folder(chosen.program, fixture, folder / fixture):
                failed.append(fixture)
    print("ok: transformers agrees with every copy" if not failed else f"FAILED: {', '.join(failed)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
