#!/usr/bin/env python3
"""Prints the reference values of tests/generate/sampling.test.cpp: what the logits processors and warpers of Transformers
5.24.0 make of 12 logits, in the order in which `generate` applies them. Run with torch and transformers."""
import math

import torch
from transformers import (LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, SuppressTokensLogitsProcessor,
                          TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)

logits = torch.tensor([[3 * math.sin(1.7 * i) for i in range(12)]], dtype=torch.float64).float()
logits[0, 7] = logits[0, 2]  # a tie
seen = torch.tensor([[1, 4, 1, 9]])
for name, penalty, suppressed, temperature, top_k, top_p, min_p in [
        ("temperature", 1.0, [], 0.7, 0, 1.0, 0.0), ("top-k", 1.0, [], 1.0, 4, 1.0, 0.0), ("top-k tie", 1.0, [], 1.0, 6, 1.0, 0.0),
        ("top-p", 1.0, [], 1.3, 0, 0.8, 0.0), ("min-p", 1.0, [], 1.5, 0, 1.0, 0.2), ("penalty", 1.3, [], 1.0, 0, 1.0, 0.0),
        ("all", 1.2, [1, 11], 0.9, 7, 0.9, 0.1)]:
    chain = LogitsProcessorList()
    if penalty != 1:
        chain.append(RepetitionPenaltyLogitsProcessor(penalty))
    if suppressed:
        chain.append(SuppressTokensLogitsProcessor(suppressed))
    if temperature != 1:
        chain.append(TemperatureLogitsWarper(temperature))
    if top_k:
        chain.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        chain.append(TopPLogitsWarper(top_p))
    if min_p:
        chain.append(MinPLogitsWarper(min_p))
    probabilities = chain(seen, logits.clone()).softmax(-1)[0]
    print(f'    {{"{name}", {{{temperature}, {top_k}, {top_p}, {min_p}, {penalty}}}, {{{", ".join(map(str, suppressed))}}}, '
          f'{{{", ".join(f"{p:.7g}" for p in probabilities.tolist())}}}}},')
