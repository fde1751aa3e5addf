#!/usr/bin/env python3
"""Has transformers load what kullback writes of every family.

    tests/interop/architectures.py build/kullback [--keep FOLDER]

For each folder of fixtures/architectures: `kullback convert` writes it again, and transformers' logits of the copy must be
those of golden.json; adapters are merged. Where PEFT is installed, it puts random adapters on the families that keep
several layers in one tensor, and `kullback check` must agree with its logits, loss and gradients. Exit status 0 when all agree, 77 where transformers is missing.
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

try:
    from peft import LoraConfig, get_peft_model
except ImportError:
    LoraConfig = None

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


def check_adapter(program, name, targets, out):
    """PEFT's adapter on fused or transposed layers, checked by kullback."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(FIXTURES / name, dtype=torch.float32, attn_implementation="eager").eval()
    transposed = name == "gpt2"
    settings = LoraConfig(r=3, lora_alpha=7, target_modules=targets, init_lora_weights=False, fan_in_fan_out=transposed, task_type="CAUSAL_LM")
    model = get_peft_model(base, settings).eval()
    model.save_pretrained(out)
    ids = torch.tensor(json.loads((FIXTURES / name / "golden.json").read_text())["input_ids"])
    logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    norms = {key.replace(".default", ""): tensor.grad.norm().item() for key, tensor in model.named_parameters() if tensor.grad is not None}
    golden = {"kind": "architecture", "input_ids": ids.tolist(), "tolerance": 1e-4, "loss": loss.item(), "grad_norms": norms,
              "logits": {"shape": list(logits.shape), "data": logits.detach().flatten().tolist()}}
    (out / "golden.json").write_text(json.dumps(golden))
    checked = subprocess.run([program, "check", out / "golden.json", "--model", FIXTURES / name], stdout=subprocess.PIPE, text=True)
    print(checked.stdout.strip().splitlines()[-1])
    return checked.returncode == 0


FUSED = {"gpt2": ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"], "phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
         "gpt-neox": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]}


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
        for name, targets in FUSED.items() if LoraConfig else []:
            if not check_adapter(chosen.program, name, targets, folder / f"{name}-adapter"):
                failed.append(f"{name}-adapter")
    print("ok: transformers agrees with every copy" if not failed else f"FAILED: {', '.join(failed)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
