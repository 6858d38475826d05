#!/usr/bin/env python3
"""Compares what `ilme-model adapt --init mean` wrote with a plain computation of the same.

usage: compare_adapt.py --model OLD --adapted NEW [--dump build/tests/dump_logits]

OLD and NEW are model folders with byte-level BPE tokenizers. Every row of a token of text is worked out anew with
numpy and the tokenizers package: the old row of the same token, else the mean of the old rows of its pieces. Pieces of
tokens that are no text by themselves (parts of characters) are merged here. Every other tensor must be the same, and
with --dump Transformers' logits of NEW must equal ours. Needs numpy, tokenizers, safetensors, torch and transformers.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors import safe_open
from tokenizers import Tokenizer

parser = argparse.ArgumentParser()
for name in ("model", "adapted", "dump"):
    parser.add_argument("--" + name, required=name != "dump")
args = parser.parse_args()
old_folder, new_folder = pathlib.Path(args.model), pathlib.Path(args.adapted)
failures = 0


def check(what, ok, figure=""):
    global failures
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {what} {figure}")


def tensors(folder):
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            out.update({name: file.get_tensor(name) for name in file.keys()})
    return out


def byte_alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in kept}
    others = [byte for byte in range(256) if byte not in kept]
    table.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return table


BYTES = byte_alphabet()
old_json, new_json = (json.loads((folder / "tokenizer.json").read_text()) for folder in (old_folder, new_folder))
old_vocab, new_vocab = (data["model"]["vocab"] for data in (old_json, new_json))
special = [{token["content"] for token in data["added_tokens"] if token["special"]} for data in (old_json, new_json)]
ranks = {tuple(merge.split(" ") if isinstance(merge, str) else merge): i
         for i, merge in enumerate(old_json["model"]["merges"])}
encoder = Tokenizer.from_file(str(old_folder / "tokenizer.json"))


def merged(token):
    parts = [c for c in token if c in old_vocab]
    while len(parts) > 1:
        rank, at = min((ranks.get(pair, float("inf")), i) for i, pair in enumerate(zip(parts, parts[1:])))
        if rank == float("inf"):
            break
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return [old_vocab[part] for part in parts]


def pieces(token):
    try:
        text = bytes(BYTES[c] for c in token).decode()
    except UnicodeDecodeError:
        return merged(token)
    return encoder.encode(text, add_special_tokens=False).ids


before, after = tensors(old_folder), tensors(new_folder)
tables = ["model.embed_tokens.weight"] + ["lm_head.weight"] * ("lm_head.weight" in after)
check("the other tensors are the same", all(torch.equal(before[name], after[name]) for name in after if name not in tables),
      f"({len(after) - len(tables)})")
for name in tables:
    old, new = before[name].float().numpy(), after[name].float().numpy()
    copied = averaged = 0
    wrong, difference = [], 0.0
    for token, id in new_vocab.items():
        if token in special[1]:
            continue
        if token in old_vocab and token not in special[0]:
            copied += 1
            if not np.array_equal(new[id], old[old_vocab[token]]):
                wrong.append(token)
        elif parts := pieces(token):
            averaged += 1
            difference = max(difference, float(np.abs(new[id] - np.mean(old[parts], axis=0, dtype=np.float64)).max()))
    check(f"{name}: rows of equal tokens are equal", not wrong, f"({copied})")
    bound = 1e-6 if before[name].dtype == torch.float32 else 1e-2
    check(f"{name}: other rows are means of their pieces", difference <= bound, f"({averaged}), max difference {difference:.1e}")

if args.dump:
    from transformers import AutoModelForCausalLM, AutoTokenizer
    ids = AutoTokenizer.from_pretrained(new_folder)("Kitablardan oxuduqlarımız yadda qalır; qiymət 12,50 manatdır!")["input_ids"]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "logits.safetensors"
        subprocess.run([args.dump, new_folder, "-", out, "fp32", *map(str, ids)], check=True)
        with safe_open(out, "pt") as file:
            ours = file.get_tensor("logits")
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(new_folder, dtype=torch.float32).eval()
        theirs = model(torch.tensor([ids])).logits[0]
    scale = theirs.abs().max().item()
    difference = (theirs - ours).abs().max().item()
    check("Transformers gives the same logits", difference <= 1e-4 * max(1.0, scale / 10), f"max difference {difference:.1e} of {scale:.0f}")
    check("Transformers generates no padding", set(model.generation_config.suppress_tokens or []) >= set(range(len(new_vocab), len(model.lm_head.weight))))

sys.exit(1 if failures else 0)
