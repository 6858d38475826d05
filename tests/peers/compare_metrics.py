#!/usr/bin/env python3
"""Compares the figures of `ilme-tokenizer evaluate` with ones counted anew from Hugging Face's tokens and offsets.

usage: compare_metrics.py --program build/bin/ilme-tokenizer --tokenizer tokenizer.json... --text FILE...

Needs tokenizers 0.23.3 and tokenization-scorer 1.1.8 (Zouhar et al. 2023); prints one line a check and exits with 1
when one fails.
"""
import argparse
import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unicodedata

import tokenization_scorer
from tokenizers import Tokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True)
parser.add_argument("--tokenizer", required=True, nargs="+")
parser.add_argument("--text", required=True, nargs="+")
args = parser.parse_args()


def is_word_character(c):
    category = unicodedata.category(c)
    return category[0] in "LM" or category in ("Nd", "Nl", "Pc") or c in "\u200c\u200d"


def words_of(document):
    """Begin and end of the words between whitespace, and of what is left of them without punctuation at the ends."""
    for match in re.finditer(r"\S+", document):
        begin, end = match.span()
        while begin < end and not is_word_character(document[begin]):
            begin += 1
        while begin < end and not is_word_character(document[end - 1]):
            end -= 1
        if not any(unicodedata.category(c)[0] == "L" for c in document[begin:end]):
            end = begin
        yield begin, end


def renyi(sequences, **options):
    with contextlib.redirect_stderr(io.StringIO()):
        return float(tokenization_scorer.score(sequences, metric="renyi", power=2.5, **options))


def figures(tokenizer, documents):
    sequences, distinct, words, running, continued, cutting = [], set(), 0, 0, 0, 0
    for document, encoding in zip(documents, tokenizer.encode_batch(documents, add_special_tokens=False)):
        sequences.append([str(id) for id in encoding.ids])
        first = 0
        for begin, end in words_of(document):
            words += 1
            if begin == end:
                continue
            running += 1
            distinct.add(document[begin:end])
            while encoding.offsets[first][1] <= begin:
                first += 1
            last = first
            while last + 1 < len(encoding.offsets) and encoding.offsets[last + 1][0] < end:
                last += 1
            continued += last > first
    alone = tokenizer.encode_batch([" " + word for word in sorted(distinct)], add_special_tokens=False)
    retained = sum(sum(end > 1 for _, end in encoding.offsets) == 1 for encoding in alone)
    tokens = sum(map(len, sequences))
    size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    return {"tokens": tokens, "tokens_per_word": tokens / words, "running_words": running, "continued_words": continued,
            "distinct_words": len(distinct), "retained_words": retained, "renyi_efficiency": renyi(sequences),
            "renyi_efficiency_of_vocabulary": renyi(sequences, vocab=size),
            "bytes_per_token": sum(len(d.encode()) for d in documents) / tokens,
            "characters_per_token": sum(map(len, documents)) / tokens}


with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(folder) / "figures.json"
    subprocess.run([args.program, "evaluate", "--tokenizer", *(f"{path}={path}" for path in args.tokenizer), "--text",
                    *args.text, "--json", out], check=True, stdout=subprocess.DEVNULL)
    results = iter(json.loads(out.read_text())["results"])

failures = 0
for text in args.text:
    documents = [line.removesuffix("\r") for line in pathlib.Path(text).read_bytes().decode().split("\n")]
    documents = [line for line in documents if line]
    for path in args.tokenizer:
        ours, theirs = next(results), figures(Tokenizer.from_file(path), documents)
        wrong = {key: (ours[key], value) for key, value in theirs.items() if abs(ours[key] - value) > 1e-9 * abs(value)}
        failures += bool(wrong)
        print(f"{'ok  ' if not wrong else 'FAIL'} {path} on {text}: {len(theirs)} figures {wrong or 'equal'}")
sys.exit(failures > 0)
