#!/usr/bin/env python3
"""Compares the scores of reward models with those of transformers.

    tests/interop/reward_model.py build/kullback build/examples/reward [--model smollm2-135m-instruct]

Makes small random models for sequence classification of three families, with the tokenizer and the chat template of a model,
saves them as transformers does, and has both score the same conversations.
Exit status 0 when all agree, 77 where a package is missing.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from transformers import (AutoTokenizer, GemmaConfig, GemmaForSequenceClassification, LlamaConfig,
                              LlamaForSequenceClassification, Qwen2Config, Qwen2ForSequenceClassification)
except ImportError as missing:
    print(f"{missing} (pip install torch transformers): not tried")
    sys.exit(77)

FAMILIES = {"llama": (LlamaConfig, LlamaForSequenceClassification), "qwen2": (Qwen2Config, Qwen2ForSequenceClassification),
            "gemma": (GemmaConfig, GemmaForSequenceClassification)}
ANSWERS = [("Hi", "Hello."), ("Why is the sky blue?", "Air scatters blue light most."), ("Say é½ 한국어.", "é½ 한국어\n\n  twice")]


@torch.no_grad()
def expected(model, tokenizer):
    scores = []
    for prompt, answer in ANSWERS:
        text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}], tokenize=False)
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        scores.append(model(input_ids=ids).logits.item())
    return scores


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("reward")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch) / "source"
        subprocess.run([options.program, "convert", options.model, source, "--type", "bf16"], check=True)
        tokenizer = AutoTokenizer.from_pretrained(source)
        lines = "".join(json.dumps({"prompt": p, "response": a}) + "\n" for p, a in ANSWERS)
        for name, (configuration, kind) in FAMILIES.items():
            torch.manual_seed(0)
            model = kind(configuration(vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                       num_key_value_heads=2, head_dim=16, intermediate_size=96, num_labels=1, pad_token_id=0,
                                       initializer_range=0.2)).eval()
            folder = pathlib.Path(scratch) / name
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            said = subprocess.run([options.reward, f"model:{folder}"], input=lines, text=True, check=True, stdout=subprocess.PIPE).stdout
            ours, theirs = [float(line.split()[1]) for line in said.splitlines()], expected(model, tokenizer)
            difference = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
            holds = difference < 1e-4
            wrong += not holds
            print(f"{'ok   ' if holds else 'WRONG'}  {name}: largest difference {difference:.2g} in {[round(v, 4) for v in theirs]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
