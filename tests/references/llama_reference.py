#!/usr/bin/env python3
"""Prints the reference values of tests/nn/llama.test.cpp: a tiny Llama of Transformers with weights by formula.

Run with torch 2.11.0 and transformers 5.24.0. Parameter number p of the sorted names holds at flat index i the value
sin(0.37 i + p) / sqrt(columns), and norms 1 + 0.1 sin(0.37 i + p).
"""
import math

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def model(tied):
    config = LlamaConfig(
        vocab_size=23, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=4, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=100.0,
        rope_scaling=dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=16), tie_word_embeddings=tied)
    llama = LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        for p, name in enumerate(sorted(dict(llama.named_parameters()))):
            weight = llama.get_parameter(name)
            wave = torch.sin(0.37 * torch.arange(weight.numel(), dtype=torch.float64) + p).view(weight.shape)
            weight.copy_(1 + 0.1 * wave if weight.dim() == 1 else wave / math.sqrt(weight.shape[1]))
    return llama


ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 22]])
for tied in (True, False):
    llama = model(tied)
    out = llama(ids, labels=ids)
    out.loss.backward()
    print("tied" if tied else "untied", "loss", repr(out.loss.item()))
    print("  last logits", [round(x, 6) for x in out.logits[0, -1].tolist()])
    for name in ("model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight",
                 "model.layers.0.input_layernorm.weight", "model.norm.weight"):
        print("  grad norm", name, repr(llama.get_parameter(name).grad.norm().item()))

# tests/evaluate/bits_per_byte.test.cpp: documents by themselves, and one in windows of 6 that move on by 2.
llama = model(True)


@torch.no_grad()
def losses(ids):
    return torch.nn.functional.cross_entropy(llama(torch.tensor([ids[:-1]])).logits[0], torch.tensor(ids[1:]), reduction="none")


print("documents", [round(losses(ids).double().sum().item(), 5) for ids in ([0, 5, 9, 11, 20, 2], [0, 17, 4], [0, 7, 7, 7, 12, 2])])
ids, total, scored, begin = [0, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9], 0.0, 1, 0
while scored < len(ids):
    end = min(begin + 6, len(ids) - 1)
    total += losses(ids[begin : end + 1])[scored - begin - 1 :].double().sum().item()
    scored, begin = end + 1, end + 2 - 6
print("windows", round(total, 5))
