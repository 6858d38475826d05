#!/usr/bin/env python3
"""Makes tests/hf/fixtures/transformers4 and transformers5: a tiny model as the real library saves it, in shards, and what
it computes (expected.json).

usage: folder_reference.py tests/hf/fixtures, with transformers 4.57.1 and again with 5.24.0
"""
import json
import pathlib
import sys

import torch
import transformers

major = transformers.__version__.split(".")[0]
folder = pathlib.Path(sys.argv[1]) / f"transformers{major}"
scaling = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=16)
rope = dict(rope_scaling=scaling, rope_theta=500.0) if major == "4" else dict(rope_parameters=scaling | {"rope_theta": 500.0})
torch.manual_seed(5)
config = transformers.LlamaConfig(
    vocab_size=24, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
    head_dim=8, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=[1, 2], tie_word_embeddings=True,
    initializer_range=0.5, dtype="bfloat16", my_key="kept", **rope)
model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
model.generation_config.update(temperature=0.6, top_p=0.9, do_sample=True)
model.save_pretrained(folder, max_shard_size="1KB")
ids = [(i * i + 3 * i + 5) % 24 for i in range(24)]
with torch.no_grad():  # loaded anew: model.float() would keep frequencies that were rounded to bf16
    logits = transformers.LlamaForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()(torch.tensor([ids])).logits[0, -1]
(folder / "expected.json").write_text(json.dumps(dict(ids=ids, logits=[round(x, 5) for x in logits.tolist()])) + "\n")
