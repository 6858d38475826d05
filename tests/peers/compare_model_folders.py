#!/usr/bin/env python3
"""Compares ilme with the real Transformers on model folders: small random models of every kind that ilme reads.

usage: compare_model_folders.py --dump build/tests/dump_logits --model-program build/bin/ilme-model [--only TEXT]

For each model: Transformers saves it (one file, shards; fp32, bf16), ilme reads it, and logits (fp32 and bf16) and
gradients agree; ilme writes it again, Transformers loads that as the same architecture with byte-identical tensors and
equal logits; Transformers saves and ilme writes once more, byte-identical. Works with transformers 4 and 5 (set
PYTHONPATH for another version). Prints one line a model and exits with 1 when one fails.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--dump", required=True)
parser.add_argument("--model-program", required=True)
parser.add_argument("--only", default="")
args = parser.parse_args()
FIVE = int(transformers.__version__.split(".")[0]) >= 5
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SHAPE = dict(vocab_size=211, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=8,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=1,
             initializer_range=0.15)


def rope(kind, theta=10000.0, **values):
    scaling = dict(rope_type=kind, **values)
    if FIVE:
        return dict(rope_parameters=dict(rope_theta=theta, **scaling))
    return dict(rope_theta=theta, rope_scaling=None if kind == "default" else scaling)


LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
YARN = dict(factor=4.0, original_max_position_embeddings=64)
LONG = dict(max_position_embeddings=256)
CASES = {
    "llama": ("Llama", {}),
    "llama, tied": ("Llama", dict(tie_word_embeddings=True)),
    "llama, one key head": ("Llama", dict(num_key_value_heads=1)),
    "llama, all key heads, as Llama 2": ("Llama", dict(num_key_value_heads=8, max_position_embeddings=4096)),
    "llama, attention_bias": ("Llama", dict(attention_bias=True)),
    "llama, mlp_bias": ("Llama", dict(mlp_bias=True)),
    "llama, both biases, tied": ("Llama", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "llama, head_dim 16": ("Llama", dict(head_dim=16)),
    "llama, head_dim 6": ("Llama", dict(head_dim=6)),
    "llama, theta 500000": ("Llama", rope("default", 500000.0)),
    "llama, linear 2": ("Llama", rope("linear", factor=2.0)),
    "llama, linear 8, head_dim 16": ("Llama", dict(head_dim=16, **rope("linear", factor=8.0))),
    "llama, dynamic 2": ("Llama", rope("dynamic", factor=2.0)),
    "llama, dynamic 4, head_dim 32": ("Llama", dict(head_dim=32, **rope("dynamic", factor=4.0))),
    "llama, llama3": ("Llama", dict(LONG, **rope("llama3", **LLAMA3))),
    "llama, llama3, head_dim 64": ("Llama", dict(LONG, head_dim=64, **rope("llama3", 500000.0, **LLAMA3))),
    "llama, yarn": ("Llama", dict(LONG, head_dim=32, **rope("yarn", **YARN))),
    "llama, yarn, attention_factor": ("Llama", dict(LONG, head_dim=32, **rope("yarn", attention_factor=0.9, **YARN))),
    "llama, yarn, betas": ("Llama", dict(LONG, head_dim=32, **rope("yarn", beta_fast=16.0, beta_slow=2.0, **YARN))),
    "llama, yarn, mscale": ("Llama", dict(LONG, head_dim=32, **rope("yarn", mscale=0.7, mscale_all_dim=1.2, **YARN))),
    "llama, yarn, not truncated": ("Llama", dict(LONG, head_dim=32, **rope("yarn", truncate=False, **YARN))),
    "mistral": ("Mistral", dict(sliding_window=None)),
    "mistral, window": ("Mistral", dict(sliding_window=4096, tie_word_embeddings=True)),
    "mistral, head_dim, yarn": ("Mistral", dict(LONG, head_dim=32, sliding_window=None, **rope("yarn", **YARN))),
    "qwen2": ("Qwen2", {}),
    "qwen2, tied, theta 1000000": ("Qwen2", dict(tie_word_embeddings=True, **rope("default", 1000000.0))),
    "qwen2, yarn": ("Qwen2", dict(LONG, **rope("yarn", **YARN))),
    "qwen2, window": ("Qwen2", dict(use_sliding_window=True, sliding_window=512, max_window_layers=1)),
}


def dump(folder, dtype, ids):
    with tempfile.TemporaryDirectory() as out:
        path = pathlib.Path(out) / "out.safetensors"
        subprocess.run([args.dump, folder, "-", path, dtype, *map(str, ids)], check=True)
        return load_file(path)


def raw_tensors(folder):
    """name -> (dtype, shape, bytes) over all files, duplicates refused."""
    found = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            assert (opened.metadata() or {}).get("format") == "pt", file
            for name in opened.keys():
                assert name not in found, name
                tensor = opened.get_tensor(name)
                found[name] = (tensor.dtype, tuple(tensor.shape), tensor.view(torch.uint8).numpy().tobytes())
    return found


def convert(source, target, *options):
    subprocess.run([args.model_program, "convert", "--model", source, "--output", target, *options], check=True,
                   stdout=subprocess.DEVNULL)


def load(folder, dtype):
    return AutoModelForCausalLM.from_pretrained(folder, torch_dtype=dtype, attn_implementation="eager").eval()


def difference(a, b):
    return (a.float() - b.float()).abs().max().item()


def largest_relative(ours, model):
    worst = 0.0
    for name, parameter in model.named_parameters():
        gradient = ours.pop("gradient." + name)
        worst = max(worst, difference(gradient, parameter.grad) / max(parameter.grad.abs().max().item(), 1e-8))
    return worst if not [key for key in ours if key.startswith("gradient.")] else float("inf")


def compare(name, family, values, work):
    torch.manual_seed(len(name))
    config = getattr(transformers, family + "Config")(**(SHAPE | values))
    model = getattr(transformers, family + "ForCausalLM")(config).float().eval()
    with torch.no_grad():  # biases and norms away from 0 and 1
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.generation_config.update(temperature=0.6, top_p=0.9, do_sample=True)
    model.config.my_key = {"kept": [1, 2]}
    ids = torch.randint(0, 211, (200,)).tolist()  # past the 64 positions of the original context
    theirs_folder, ours_folder = work / "theirs", work / "ours"
    model.save_pretrained(theirs_folder, max_shard_size="40KB")
    figures = {}

    found = dump(theirs_folder, "fp32+gradients", ids)
    loaded = load(theirs_folder, torch.float32)
    out = loaded(torch.tensor([ids]), labels=torch.tensor([ids]))
    out.loss.backward()
    figures["logits"] = difference(found["logits"], out.logits[0])
    figures["gradients"] = largest_relative(found, loaded)
    with torch.no_grad():
        half = load(theirs_folder, torch.bfloat16)(torch.tensor([ids])).logits[0]
    ours_half = dump(theirs_folder, "bf16", ids)["logits"]
    exact = out.logits[0].detach()
    figures["bf16"] = (ours_half.float() - exact).pow(2).mean().sqrt().item() / (half.float() - exact).pow(2).mean().sqrt().item()

    convert(theirs_folder, ours_folder, "--max-shard-size", "50kB")
    assert raw_tensors(ours_folder) == raw_tensors(theirs_folder), "tensors changed"
    settings = json.loads((ours_folder / "config.json").read_text())
    generation = json.loads((ours_folder / "generation_config.json").read_text())
    assert settings["my_key"] == {"kept": [1, 2]} and generation["top_p"] == 0.9, "keys were lost"
    again = load(ours_folder, torch.float32)
    assert type(again) is type(model)
    with torch.no_grad():
        assert torch.equal(again(torch.tensor([ids])).logits[0], exact), "not the same model in Transformers"
    again.save_pretrained(work / "theirs2")
    convert(work / "theirs2", work / "ours2")
    assert raw_tensors(work / "ours2") == raw_tensors(theirs_folder), "tensors changed on the second round"
    load(theirs_folder, torch.bfloat16).save_pretrained(work / "half")
    convert(work / "half", work / "ours_half")
    assert raw_tensors(work / "ours_half") == raw_tensors(work / "half"), "bf16 tensors changed"
    ok = figures["logits"] <= 1e-4 and figures["gradients"] <= 1e-4 and figures["bf16"] <= 1.2
    return ok, figures


print(f"transformers {transformers.__version__}; largest difference of logits, of gradients (relative to a tensor's "
      "largest), and our bf16 error as a share of Transformers' bf16 error (both against fp32)")
failures = 0
for name, (family, values) in CASES.items():
    if args.only not in name:
        continue
    with tempfile.TemporaryDirectory() as folder:
        try:
            ok, figures = compare(name, family, values, pathlib.Path(folder))
            text = ", ".join(f"{key} {value:.2e}" for key, value in figures.items())
        except Exception as error:
            ok, text = False, f"{type(error).__name__}: {error}"
        failures += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {name}: {text}", flush=True)
sys.exit(1 if failures else 0)
