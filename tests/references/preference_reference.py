"""Reference values for tests/loss/preference.test.cpp: the formulas of the papers (and of TRL where it differs from
them), written out with PyTorch in float64 over log-probabilities of sequences.

    python tests/references/preference_reference.py
"""

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)

# Two pairs, the chosen answers first: sums of log-probabilities, tokens, and the reference model's sums.
SUMS = [-12.5, -7.25, -15.0, -6.5]
TOKENS = [5.0, 4.0, 6.0, 3.0]
REFERENCE = [-13.0, -7.0, -14.0, -7.5]


def split(x):
    return x[:2], x[2:]


def dpo(sums, beta, smoothing):
    (pc, pr), (rc, rr) = split(sums), split(torch.tensor(REFERENCE))
    logits = (pc - pr) - (rc - rr)
    return -F.logsigmoid(beta * logits) * (1 - smoothing) - F.logsigmoid(-beta * logits) * smoothing


def ipo(sums, beta):  # TRL: means per token
    tokens = torch.tensor(TOKENS)
    (pc, pr), (rc, rr) = split(sums / tokens), split(torch.tensor(REFERENCE) / tokens)
    return ((pc - pr) - (rc - rr) - 1 / (2 * beta)) ** 2


def orpo(sums, beta):
    c, r = split(sums / torch.tensor(TOKENS))
    odds = lambda logp: torch.exp(logp) / (1 - torch.exp(logp))
    return -c - beta * F.logsigmoid(torch.log(odds(c) / odds(r)))


def simpo(sums, beta, margin):
    c, r = split(sums / torch.tensor(TOKENS))
    return -F.logsigmoid(beta * c - beta * r - margin)


def kto(sums, beta, desirable_weight, undesirable_weight, kl):
    ratios = sums - torch.tensor(REFERENCE)
    desirable = torch.tensor([True, True, False, False])
    gains = desirable_weight * (1 - torch.sigmoid(beta * (ratios - kl)))
    losses = undesirable_weight * (1 - torch.sigmoid(beta * (kl - ratios)))
    return torch.where(desirable, gains, losses)


def report(name, loss):
    sums = torch.tensor(SUMS, requires_grad=True)
    value = loss(sums).sum()
    value.backward()
    print(f"{name}: {{{value.item():.12f}, {{{', '.join(f'{g:.12f}' for g in sums.grad.tolist())}}}}}")


report("dpo", lambda s: dpo(s, 0.1, 0.0))
report("dpo smoothed", lambda s: dpo(s, 0.5, 0.2))
report("ipo", lambda s: ipo(s, 0.1))
report("orpo", lambda s: orpo(s, 0.25))
report("simpo", lambda s: simpo(s, 2.0, 0.5))
report("kto", lambda s: kto(s, 0.1, 1.0, 1.5, 0.3))
