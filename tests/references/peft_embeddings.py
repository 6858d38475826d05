#!/usr/bin/env python3
"""Adapters with embeddings and head trained whole (modules_to_save), as PEFT writes and reads them.

Without arguments: writes tests/lora/fixtures/{tied,untied} and prints the logits that tests/lora/adapters.test.cpp
expects. With MODEL ADAPTER: loads both with PEFT, merges them too, and prints the logits of a model folder that
ilme-finetune trained, to compare with ilme's. Run with torch 2.11.0, transformers 5.24.0 and peft 0.21.2.
"""
import math
import pathlib
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

IDS = torch.tensor([[3, 1, 4, 1, 5, 9]])


def base(tied):
    """The model of llama_reference.py."""
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


def last_logits(model):
    with torch.no_grad():
        return [round(x, 5) for x in model(IDS).logits[0, -1].tolist()]


def write(tied):
    folder = pathlib.Path(__file__).parent.parent / "lora" / "fixtures" / ("tied" if tied else "untied")
    modules = ["embed_tokens"] if tied else ["embed_tokens", "lm_head"]
    peft = get_peft_model(base(tied), LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=modules,
                                                 ensure_weight_tying=tied, task_type="CAUSAL_LM"))
    trained = sorted((name, weight) for name, weight in peft.named_parameters() if weight.requires_grad)
    with torch.no_grad():
        for p, (name, weight) in enumerate(trained):
            weight.copy_(0.3 * torch.sin(0.53 * torch.arange(weight.numel(), dtype=torch.float64) + p).view(weight.shape))
    peft.eval()
    peft.base_model.model.config._name_or_path = ""
    peft.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    print(folder.name, last_logits(peft))


def read(model, adapter):
    peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), adapter).eval()
    print(last_logits(peft))
    print("merged", last_logits(peft.merge_and_unload()))


if len(sys.argv) == 3:
    read(*sys.argv[1:])
else:
    write(True)
    write(False)
