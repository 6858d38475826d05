#!/usr/bin/env python3
"""Compares ilme-evaluate with a plain Transformers computation of the same.

usage: compare_evaluation.py --program build/bin/ilme-evaluate --model DIR [--text FILE --limit N --window N --stride N]
                             [--choices FILE] [--prompts FILE --max-tokens N] [--dtype fp32|bf16]

Text: every document by itself, the start token before it, windows as ilme-evaluate describes them. Choices: ids split
as lm-evaluation-harness does, one forward pass a choice over full logits. Prompts: greedy generate(). Needs torch,
transformers and tokenizers; prints one line a check and exits with 1 when one fails.
"""
import argparse
import collections
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True)
parser.add_argument("--model", required=True)
parser.add_argument("--text")
parser.add_argument("--choices")
parser.add_argument("--prompts")
parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
for name, value in (("limit", 300), ("window", 1024), ("stride", 512), ("max-tokens", 32)):
    parser.add_argument("--" + name, type=int, default=value)
args = parser.parse_args()
failures = 0


def check(what, ok, figure=""):
    global failures
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {what} {figure}", flush=True)


# ---- ours
command = [args.program, "--model", args.model, "--limit", str(args.limit), "--dtype", args.dtype, "--window",
           str(args.window), "--stride", str(args.stride), "--max-tokens", str(args.max_tokens), "--log-every", "0"]
for option in ("text", "choices", "prompts"):
    if getattr(args, option):
        command += ["--" + option, getattr(args, option)]
with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(folder) / "ours.json"
    began = time.monotonic()
    subprocess.run(command + ["--json", out], check=True, stdout=subprocess.DEVNULL)
    print(f"ours: {time.monotonic() - began:.1f} s in all", flush=True)
    ours = json.loads(out.read_text())

# ---- theirs
folder = pathlib.Path(args.model)
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.encode_special_tokens = True
config = json.loads((folder / "config.json").read_text())
tokenizer_config = json.loads((folder / "tokenizer_config.json").read_text()) if (folder / "tokenizer_config.json").exists() else {}
bos = tokenizer_config.get("bos_token")
bos = tokenizer.token_to_id(bos["content"] if isinstance(bos, dict) else bos) if bos else config["bos_token_id"]
dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def encode(text):
    return tokenizer.encode(text, add_special_tokens=False).ids


@torch.no_grad()
def losses(ids):
    """-log p of ids[1:], each given all before it."""
    logits = model(torch.tensor([ids[:-1]])).logits[0].float()
    return torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none").double()


def lines(file):
    return [line for line in pathlib.Path(file).read_text(encoding="utf-8").split("\n") if line][: args.limit]


# What rounding explains: fp32 to about 1e-6 of a loss, bf16 to some 1e-2 a token that mostly cancel.
tolerance = {"fp32": 1e-5, "bf16": 5e-3}[args.dtype]

if args.text:
    began = time.monotonic()
    total, worst, bytes_, tokens = 0.0, 0.0, 0, 0
    got = ours["texts"][0]
    for i, line in enumerate(lines(args.text)):
        ids = [bos] + encode(line)
        document, scored, begin = 0.0, 1, 0
        while scored < len(ids):
            end = min(begin + args.window, len(ids) - 1)
            document += losses(ids[begin : end + 1])[scored - begin - 1 :].sum().item()
            scored, begin = end + 1, end + args.stride - args.window
        worst = max(worst, abs(document - got["each_document"]["negative_log_likelihood"][i]) / (len(ids) - 1))
        total, bytes_, tokens = total + document, bytes_ + len(line.encode()), tokens + len(ids) - 1
    bits = total / math.log(2) / bytes_
    print(f"theirs: text {time.monotonic() - began:.1f} s, ours: {ours['seconds']:.1f} s in all")
    check("documents, bytes, tokens", (got["documents"], got["bytes"], got["tokens"]) == (i + 1, bytes_, tokens),
          f"{i + 1} {bytes_} {tokens}")
    check("bits per byte", abs(got["bits_per_byte"] / bits - 1) < tolerance, f"ours {got['bits_per_byte']!r} theirs {bits!r}")
    perplexity = math.exp(total / tokens)
    check("perplexity", abs(got["perplexity"] / perplexity - 1) < 10 * tolerance, f"{got['perplexity']:.6f} {perplexity:.6f}")
    check("every document", worst < 20 * tolerance, f"largest difference {worst:.2e} of a mean token loss")

if args.choices:
    right, worst, count = collections.Counter(), 0.0, 0
    for i, line in enumerate(lines(args.choices)):
        question, got = json.loads(line), ours["choices"][0]["each_question"][i]
        prompt = question.get("context", "") + question["question"]
        answer = question["answer"]
        answer = question["choices"].index(answer) if isinstance(answer, str) else answer
        sums, lengths = [], []
        for c, choice in enumerate(question["choices"]):
            whole, context = encode(prompt + " " + choice), encode(prompt.rstrip())
            first = min(len(context), len(whole) - 1)
            sums.append(-losses([bos] + whole)[first:].sum().item())
            lengths.append((1, len(choice), len(choice.encode()), len(whole) - first))
            worst = max(worst, abs(sums[-1] - got["log_likelihoods"][c]) / lengths[-1][3])
        for n, norm in enumerate(("", "_characters", "_bytes", "_tokens")):
            scores = [s / length[n] for s, length in zip(sums, lengths)]
            right["accuracy" + norm] += scores.index(max(scores)) == answer
        count += 1
    check("log-likelihoods of choices", worst < 20 * tolerance, f"largest difference {worst:.2e} a token")
    for name, value in right.items():
        error = math.sqrt(value / count * (1 - value / count) / (count - 1))
        got = ours["choices"][0]
        slack = 0 if args.dtype == "fp32" else 0.05  # a near tie may fall the other way
        check(name, abs(got[name] - value / count) <= slack + 1e-12
              and (slack or abs(got[name + "_standard_error"] - error) < 1e-12), f"{got[name]:.4f} {value / count:.4f}")

if args.prompts:
    stops = {config["eos_token_id"]} if isinstance(config["eos_token_id"], int) else set(config["eos_token_id"])
    same, repeated = 0, []
    answers = ours["prompts"][0]["each_answer"]
    for line, got in zip(lines(args.prompts), answers):
        prompt = [bos] + encode(json.loads(line)["prompt"] if args.prompts.endswith("l") else line)
        out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                             do_sample=False, max_new_tokens=args.max_tokens, pad_token_id=min(stops))
        ids = out[0, len(prompt):].tolist()
        ended = ids[-1] in stops
        ids = ids[:-1] if ended else ids
        text = tokenizer.decode(ids, skip_special_tokens=True)
        same += text == got["text"] and len(ids) == got["tokens"] and ended == got["ended"]
        words = text.split()
        grams = [tuple(words[k : k + 4]) for k in range(len(words) - 3)]
        repeated.append(1 - len(set(grams)) / len(grams) if grams else 0)
    mean = sum(repeated) / len(repeated)
    got = ours["prompts"][0]["repeated_word_4grams"]
    check("greedy answers", same == len(answers) or args.dtype == "bf16", f"{same} of {len(answers)} equal")
    check("repeated 4-grams of words", abs(got - mean) < 1e-12 or same < len(answers), f"{got:.6f} {mean:.6f}")

sys.exit(1 if failures else 0)
