#!/usr/bin/env python3
"""Writes tests/hf/fixtures/architectures.json: tiny models of Transformers of every kind that ilme reads, with weights
by formula (as llama_reference.py), their config.json as Transformers saves it, and what they compute.

Run with torch 2.11.0 and transformers 5.24.0: architectures_reference.py tests/hf/fixtures/architectures.json
"""
import json
import math
import pathlib
import sys
import tempfile

import torch
import transformers

SHAPE = dict(vocab_size=23, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=16, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=1)
LENGTH = 40  # past the 16 positions that the models are meant for
IDS = [(i * i + 3 * i + 5) % 23 for i in range(LENGTH)]


def rope(kind, **values):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=100.0, **values))


CASES = {
    "plain, tied, as many key heads": ("Llama", dict(num_key_value_heads=4, tie_word_embeddings=True, **rope("default"))),
    "one key head": ("Llama", dict(num_key_value_heads=1, **rope("default"))),
    "biases": ("Llama", dict(attention_bias=True, mlp_bias=True, **rope("default"))),
    "explicit head_dim": ("Llama", dict(head_dim=6, **rope("default"))),
    "linear": ("Llama", rope("linear", factor=4.0)),
    "dynamic": ("Llama", rope("dynamic", factor=3.0)),
    "dynamic, tied, large head_dim": ("Llama", dict(head_dim=10, tie_word_embeddings=True, **rope("dynamic", factor=2.0))),
    "llama3": ("Llama", dict(max_position_embeddings=64, head_dim=12, **rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16))),
    "yarn": ("Llama", dict(max_position_embeddings=64, head_dim=12, **rope(
        "yarn", factor=4.0, original_max_position_embeddings=16))),
    "yarn, attention_factor and betas": ("Llama", dict(max_position_embeddings=64, head_dim=12, **rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, attention_factor=0.8, beta_fast=4.0, beta_slow=0.5))),
    "yarn, mscale, not truncated": ("Llama", dict(max_position_embeddings=64, head_dim=12, **rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, mscale=0.7, mscale_all_dim=0.3, truncate=False))),
    "mistral": ("Mistral", dict(sliding_window=None, **rope("default"))),
    "mistral, window as long as the text": ("Mistral", dict(sliding_window=LENGTH, **rope("default"))),
    "mistral, window": ("Mistral", dict(sliding_window=9, **rope("default"))),
    "qwen2": ("Qwen2", dict(tie_word_embeddings=True, **rope("default"))),
    "qwen2, yarn": ("Qwen2", rope("yarn", factor=4.0, original_max_position_embeddings=16)),
    "qwen2, window in the last layer": ("Qwen2", dict(use_sliding_window=True, sliding_window=9, max_window_layers=1,
                                                      **rope("default"))),
}
GRADIENTS = ("model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight",
             "model.layers.0.self_attn.q_proj.bias", "model.layers.1.self_attn.o_proj.bias",
             "model.layers.1.mlp.down_proj.weight", "model.layers.1.mlp.up_proj.bias", "model.norm.weight")


def fill_by_formula(model):
    with torch.no_grad():
        for p, name in enumerate(sorted(dict(model.named_parameters()))):
            weight = model.get_parameter(name)
            wave = torch.sin(0.37 * torch.arange(weight.numel(), dtype=torch.float64) + p).view(weight.shape)
            weight.copy_(1 + 0.1 * wave if weight.dim() == 1 else 2 * wave / math.sqrt(weight.shape[1]))


def main(path):
    cases = []
    for name, (family, values) in CASES.items():
        config = getattr(transformers, family + "Config")(**(SHAPE | values))
        model = getattr(transformers, family + "ForCausalLM")(config).float().eval()
        fill_by_formula(model)
        ids = torch.tensor([IDS])
        out = model(ids, labels=ids)
        out.loss.backward()
        with tempfile.TemporaryDirectory() as folder:
            model.config.save_pretrained(folder)
            saved = json.loads((pathlib.Path(folder) / "config.json").read_text())
        parameters = dict(model.named_parameters())
        cases.append(dict(
            name=name, config=saved, loss=round(out.loss.item(), 6),
            logits=[round(x, 5) for x in out.logits[0, -1].tolist()],
            middle_logits=[round(x, 5) for x in out.logits[0, 20, :8].tolist()],
            gradient_norms={key: round(parameters[key].grad.norm().item(), 6) for key in GRADIENTS if key in parameters}))
    made = f"transformers {transformers.__version__}, torch {torch.__version__}"
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    pathlib.Path(path).write_text(f'{{"made_with": "{made}", "ids": {json.dumps(IDS)}, "cases": [\n{lines}\n]}}\n')


main(sys.argv[1])
