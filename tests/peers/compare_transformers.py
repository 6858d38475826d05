#!/usr/bin/env python3
"""Compares ilme with the real Transformers, PEFT, tokenizers and TensorBoard on the folders of a pipeline run.

usage: compare_transformers.py --dump build/tests/dump_logits --model DIR [--adapter DIR] [--merged DIR]
                               [--text FILE] [--tokenizer-program build/bin/ilme-tokenizer] [--events DIR]

Needs torch, transformers, peft, tokenizers, safetensors and tensorboard; prints one line a check and exits with 1 when
one fails.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser()
for name in ("dump", "model", "adapter", "merged", "text", "tokenizer-program", "events"):
    parser.add_argument("--" + name, required=name in ("dump", "model"))
args = parser.parse_args()
failures = 0


def check(what, ok, figure=""):
    global failures
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {what} {figure}")


def ours(model, adapter, ids):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "logits.safetensors"
        subprocess.run([args.dump, model, adapter or "-", out, "fp32", *map(str, ids)], check=True)
        return load_file(out)["logits"]


tokenizer = AutoTokenizer.from_pretrained(args.model)
text = "Kitablardan oxuduqlarımız yadda qalır; 2026-cı ildə BMT-nin toplantısı keçirildi. Qiymət 12,50 manatdır!"
ids = tokenizer(text)["input_ids"]
check("tokenizer adds BOS once", ids.count(tokenizer.bos_token_id) == 1)
check("decode gives the text back", tokenizer.decode(ids, skip_special_tokens=True) == text)

with torch.no_grad():
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    theirs = model(torch.tensor([ids])).logits[0]
    difference = (theirs - ours(args.model, None, ids)).abs().max().item()
    check("logits of the model", difference <= 1e-4, f"max difference {difference:.2e}")
    if args.adapter:
        from peft import PeftModel
        peft = PeftModel.from_pretrained(model, args.adapter).eval()
        adapted = peft(torch.tensor([ids])).logits[0]
        difference = (adapted - ours(args.model, args.adapter, ids)).abs().max().item()
        moved = (adapted - theirs).abs().max().item()
        check("logits with the adapter", difference <= 1e-4 and moved > 1e-3,
              f"max difference {difference:.2e}, the adapter moves them by {moved:.2e}")
    if args.merged:
        merged = AutoModelForCausalLM.from_pretrained(args.merged, dtype=torch.float32).eval()(torch.tensor([ids])).logits[0]
        difference = (merged - adapted).abs().max().item()
        check("logits of the merged model", difference <= 1e-3, f"max difference {difference:.2e} (dtype of the folder)")

if args.text and args.tokenizer_program:
    from tokenizers import Tokenizer
    lines = pathlib.Path(args.text).read_text(encoding="utf-8")
    expected = Tokenizer.from_file(str(pathlib.Path(args.model) / "tokenizer.json")).encode(lines, add_special_tokens=False).ids
    with tempfile.NamedTemporaryFile(suffix=".bin") as out:
        subprocess.run([args.tokenizer_program, "encode", "--tokenizer", args.model, "--input", args.text, "--output",
                        out.name], check=True, stderr=subprocess.DEVNULL)
        got = memoryview(pathlib.Path(out.name).read_bytes()).cast("I").tolist()
    check("ids of the whole text", got == expected, f"{len(expected)} ids")
    messages = [{"role": "system", "content": "Sən köməkçisən."}, {"role": "user", "content": "Salam!"}]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    check("chat template renders", rendered.endswith("<|start_header_id|>assistant<|end_header_id|>\n\n"))

if args.events:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(args.events)
    events.Reload()
    tags = events.Tags()["scalars"]
    check("TensorBoard reads the curves", "loss" in tags and len(events.Scalars("loss")) > 0,
          ", ".join(f"{tag} x{len(events.Scalars(tag))}" for tag in tags))

sys.exit(1 if failures else 0)
