#!/usr/bin/env python3
"""Has transformers and PEFT load what runs wrote, and compares what they make of it with what kullback makes of it.

    tests/interop/transformers_and_peft.py build/kullback [--model smollm2-135m-instruct] [--keep FOLDER]

Four steps:
 1. a short run of all weights; transformers loads its model, and `kullback check` compares log-probabilities, entropies,
    the largest logits and greedy tokens with transformers' (and the tokenizer's ids on awkward texts);
 2. a short run of adapters on that model; PEFT loads the adapter, and the greedy text of `kullback generate --adapter`
    must be PEFT's;
 3. kullback merges the adapter (a run of all weights that hardly moves them); the weights must be PEFT's merged ones;
 4. `kullback check` on the merged model against PEFT's numbers with the adapter beside its base.

Exit status 0 when all agree, 77 where a package is missing.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError as missing:
    print(f"{missing} (pip install torch transformers peft): not tried")
    sys.exit(77)

QUESTIONS = [(None, "What is the capital of France?"), (None, "Name three colours."),
             ("Answer in one word.", "Is water wet?"), (None, "Why do cats purr?")]
TEXTS = ["", " ", "plain words", "  two  spaces\n\n\tand tabs\r\n", "1234567890 3.14", "don't we'LL I'M", "½ ² Ⅷ", "naïve café",
         "한국어 문장", "日本語の文", "العربية", "🙂👩‍👩‍👧", "<|im_start|>user\nHi<|im_end|>", "a<|endoftext|>b", "__init__(self):", "\u0000\ufeff"]


def run(program, *arguments):
    print("$ kullback", *arguments, flush=True)
    return subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True).stdout


def preferences(path):
    rows = [("Say hello.", "Hello!", "Well, where shall I begin? Greetings come in many forms."),
            ("What is two and two?", "Four.", "Numbers are a fascinating subject with a long history."),
            ("Name a fruit.", "Apple.", "There are many fruits, and everyone likes another one."),
            ("Is ice cold?", "Yes.", "It depends on what one means by cold, and by ice.")]
    path.write_text("".join(json.dumps({"prompt": p, "chosen": c, "rejected": r}) + "\n" for p, c, r in rows))


def messages(system, user):
    return ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": user}]


@torch.no_grad()
def language_model_fixture(model, tokenizer, path):
    """The file that `kullback check` reads, with numbers of transformers or PEFT."""
    cases = []
    for system, user in QUESTIONS:
        rendered = tokenizer.apply_chat_template(messages(system, user), tokenize=False, add_generation_prompt=True)
        ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
        logits = model(torch.tensor([ids])).logits[0].double()
        logps = logits.log_softmax(-1)
        largest = logits[-1].topk(8)
        greedy = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), max_new_tokens=24,
                                do_sample=False, pad_token_id=0)[0, len(ids):].tolist()
        cases.append({
            "user": user, "system": system, "rendered": rendered, "ids": ids,
            "logps": logps[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist(),
            "entropy": (-(logps.exp() * logps).sum(-1)).tolist(), "logsumexp": logits.logsumexp(-1).tolist(),
            "last_top8": {"ids": largest.indices.tolist(), "logits": largest.values.tolist()},
            "greedy": greedy, "greedy_text": tokenizer.decode(greedy, skip_special_tokens=False, clean_up_tokenization_spaces=False)})
    path.write_text(json.dumps({"kind": "lm", "model": "", "source": "transformers", "tolerance": {"logps": 2e-3, "logits": 5e-3}, "cases": cases}))


def tokenizer_fixture(tokenizer, path):
    cases = [{"text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]} for text in TEXTS]
    path.write_text(json.dumps({"kind": "tokenizer", "model": "", "source": "transformers", "cases": cases}))


def check_merged_weights(merged, folder):
    ours = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    worst, largest = 0.0, 0.0
    for name, tensor in merged.state_dict().items():
        worst = max(worst, (tensor - ours[name]).abs().max().item())
        largest = max(largest, tensor.abs().max().item())
    assert worst <= 1e-6 * max(1.0, largest), f"merged weights differ by {worst}"
    print(f"merged weights differ by at most {worst:.1e}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("program")
    arguments.add_argument("--model", default="smollm2-135m-instruct")
    arguments.add_argument("--keep", help="work in this folder and leave it there")
    chosen = arguments.parse_args()
    program = os.path.abspath(chosen.program)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(chosen.keep or temporary)
        folder.mkdir(exist_ok=True)
        data = folder / "pairs.jsonl"
        preferences(data)
        common = ["--method", "dpo", "--data", data, "--eval-fraction", 0.25, "--batch-size", 3, "--samples", 0, "--max-length", 128]

        run(program, "align", "--model", chosen.model, *common, "--train", "full", "--learning-rate", 1e-5, "--max-steps", 1, "--output", folder / "full")
        base_folder = folder / "full" / "model"
        tokenizer = AutoTokenizer.from_pretrained(base_folder)
        base = AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32).eval()
        language_model_fixture(base, tokenizer, folder / "full.json")
        tokenizer_fixture(tokenizer, folder / "tokenizer.json")
        print(run(program, "check", folder / "full.json", folder / "tokenizer.json", "--model", base_folder))

        run(program, "align", "--model", base_folder, *common, "--train", "lora", "--learning-rate", 1e-3, "--epochs", 4, "--output", folder / "lora")
        adapter_folder = folder / "lora" / "adapter"
        with_adapter = PeftModel.from_pretrained(base, adapter_folder).eval()
        for (system, user), case in zip(QUESTIONS, collect_greedy(with_adapter, tokenizer)):
            asked = ["--system", system] if system else []
            text = run(program, "generate", "--model", base_folder, "--adapter", adapter_folder, *asked, "--prompt", user, "--temperature", 0,
                       "--max-new-tokens", 24)
            assert text.rstrip("\n") == case.rstrip("\n"), f"kullback: {text!r}\nPEFT:     {case!r}"
        print("greedy texts with the adapter agree")

        run(program, "align", "--model", base_folder, "--adapter", adapter_folder, *common, "--train", "full", "--learning-rate", 1e-30, "--max-steps", 1,
            "--output", folder / "merged")
        language_model_fixture(with_adapter, tokenizer, folder / "adapter.json")
        print(run(program, "check", folder / "adapter.json", "--model", folder / "merged" / "model"))
        check_merged_weights(with_adapter.merge_and_unload(), folder / "merged" / "model")
    print("ok: transformers and PEFT agree with kullback")


@torch.no_grad()
def collect_greedy(model, tokenizer):
    texts = []
    for system, user in QUESTIONS:
        rendered = tokenizer.apply_chat_template(messages(system, user), tokenize=False, add_generation_prompt=True)
        ids = torch.tensor([tokenizer(rendered, add_special_tokens=False)["input_ids"]])
        new = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False, pad_token_id=0)[0, ids.shape[1]:]
        texts.append(tokenizer.decode(new, skip_special_tokens=True, clean_up_tokenization_spaces=False))
    return texts


if __name__ == "__main__":
    main()
