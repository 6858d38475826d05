#!/usr/bin/env python3
"""Compares the normaliser `az` with Hugging Face, which executes the same steps, and with its rules written down plainly.

usage: compare_az_normalizer.py --program build/tests/dump_normalized [--random N] [--seed N] [FILE ...]

Normalises the files line by line, as they are and with their letters and apostrophes replaced by the variants that the
normaliser knows, and N random texts. Needs tokenizers 0.23.3; prints one line a check and exits with 1 when one fails.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer, normalizers

TABLES = (pathlib.Path(__file__).resolve().parents[2] / "include/ilme/text/category_tables.hpp").read_text()
RUNS = [(int(first, 16), category) for first, category in re.findall(r"\{0x([0-9A-F]+), Category::(\w+)\}", TABLES)]


def characters(kind):
    """Of a general category that begins with `kind`."""
    ends = [first for first, _ in RUNS[1:]] + [0x110000]
    return {chr(c) for (first, category), end in zip(RUNS, ends) if category.startswith(kind) for c in range(first, end)}


LETTERS, MARKS = characters("L"), characters("M")
LATIN = {chr(c) for first, last in re.findall(r'\{"latin", 0x([0-9A-F]+), 0x([0-9A-F]+)\}', TABLES)
         for c in range(int(first, 16), int(last, 16) + 1)}
NFC, LOWERCASE = normalizers.NFC().normalize_str, normalizers.Lowercase().normalize_str


def in_words(text, holds, changes):
    """Applies `changes` in the runs of letters that hold one of the characters `holds`."""
    out, at = [], 0
    while at < len(text):
        end = at
        while end < len(text) and text[end] in LETTERS:
            end += 1
        end = max(end, at + 1)
        word = text[at:end]
        if holds & set(word) & LETTERS:
            word = "".join(changes.get(c, c) for c in word)
        out.append(word)
        at = end
    return "".join(out)


def by_the_rules(text, lowercase):
    text = NFC(text.replace("i\u0307", "i"))
    text = text.replace("ǝ", "ə").replace("Ǝ", "Ə")
    text = in_words(text, LATIN, {"ә": "ə", "Ә": "Ə"})
    text = "".join("'" if c in "’‘ʼ`´" and 0 < i < len(text) - 1 and text[i - 1] in LETTERS
                   and text[i + 1] in LETTERS else c for i, c in enumerate(text)) if set("’‘ʼ`´") & set(text) else text
    text = in_words(text, set("əƏğĞı"), {"ș": "ş", "Ș": "Ş"})
    return LOWERCASE(text.replace("İ", "i").replace("I", "ı")) if lowercase else text


VARIANTS = {"ə": "әǝəə", "Ə": "ӘƎƏ", "ş": "șşs\u0327", "Ş": "ȘŞ", "'": "’‘ʼ`´'ʻ′", "’": "’‘ʼ`´'", "i": "iiiii\u0307", "İ": "İI\u0307",
            "a": "aaaaaaaaа", "b": "bbbbбв"}
COMMON = list("әәӘәǝƎəƏșȘşğĞıIİiaZбЖгё中") + list("’‘ʼ`´'ʻ′-. \n1ⅧªК") + ["\u0307", "\u0301", "i\u0307", "g\u0306", "s\u0326", "  "]


def with_variants(line, source):
    return "".join(source.choice(VARIANTS[c]) if c in VARIANTS and source.random() < 0.3 else c for c in line)


def lines(path, varied, seed):
    source = random.Random(seed)
    for line in pathlib.Path(path).read_bytes().decode("utf-8").splitlines(True):
        yield with_variants(line, source) if varied else line


def random_texts(count, seed):
    source = random.Random(seed)
    everything = sorted(LETTERS | MARKS)
    for _ in range(count):
        yield "".join(source.choice(everything) if source.random() < 0.05 else source.choice(COMMON)
                      for _ in range(source.randrange(1, 20)))


def framed(data):
    return len(data).to_bytes(4, "little") + data


def compare(program, name, texts):
    texts = list(texts)
    with tempfile.TemporaryFile() as given:
        for text in texts:
            given.write(framed(text.encode()))
        given.seek(0)
        result = subprocess.run([program, name], stdin=given, stdout=subprocess.PIPE, check=True).stdout
    at = 0

    def take():
        nonlocal at
        end = at + 4 + int.from_bytes(result[at:at + 4], "little")
        at, data = end, result[at + 4:end]
        return data.decode()

    peer = Tokenizer.from_str(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                                          "normalizer": json.loads(take()), "pre_tokenizer": None, "post_processor": None,
                                          "decoder": None, "model": {"type": "BPE", "vocab": {}, "merges": []}}))
    changed = 0
    for text in texts:
        ours, theirs, rules = take(), peer.normalizer.normalize_str(text), by_the_rules(text, name == "az-lower")
        if not ours == theirs == rules:
            raise AssertionError(f"{text[:200]!a}: ours {ours[:200]!a}, peer {theirs[:200]!a}, rules {rules[:200]!a}")
        changed += ours != text
    return len(texts), changed


parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True)
parser.add_argument("--random", type=int, default=300_000)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("files", nargs="*")
args = parser.parse_args()
failed = False
for name in ("az", "az-lower"):
    checks = [(path + (", varied" if varied else ""), lines(path, varied, args.seed))
              for path in args.files for varied in (False, True)]
    checks.append((f"random, seed {args.seed}", random_texts(args.random, args.seed)))
    for what, texts in checks:
        start = time.time()
        try:
            count, changed = compare(args.program, name, texts)
            print(f"ok   {name}: {what}: {count} texts, {changed} change, {time.time() - start:.0f} s", flush=True)
        except AssertionError as error:
            failed = True
            print(f"FAIL {name}: {what}: {error}", flush=True)
sys.exit(failed)
