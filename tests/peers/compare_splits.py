#!/usr/bin/env python3
"""Compares the scanners of known split patterns with Hugging Face's regex engine, piece by piece.

usage: compare_splits.py --program build/tests/dump_splits [--patterns az,o200k] [--random N] [--seed N] [FILE ...]

Splits the files (in blocks), a text around every code point, and N random texts that are rich in what the patterns tell
apart. Needs tokenizers 0.23.3; prints one line a check and exits with 1 when one fails.
"""
import argparse
import array
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

from tokenizers import Regex, pre_tokenizers

HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include/ilme/text"


def patterns():
    """The regular expressions as the headers have them, by the name for --pattern."""
    found = {}
    for header in ("scanner.hpp", "scanner_o200k.hpp", "scanner_az.hpp"):
        for name, literals in re.findall(r'k(\w+)Pattern =\s*((?:R"\((?:.|\n)*?\)"\s*)+);', (HEADERS / header).read_text()):
            found[name.lower()] = "".join(re.findall(r'R"\(((?:.|\n)*?)\)"', literals))
    return found


def boundaries():
    """The code points at the ends of the ranges of every class, and those next to them."""
    table = (HEADERS / "unicode_tables.hpp").read_text()
    ends = {int(x, 16) + d for x in re.findall(r"0x[0-9A-F]+", table) for d in (-1, 0, 1)}
    return [chr(c) for c in sorted(ends) if 0 <= c < 0x110000 and not 0xD800 <= c < 0xE000]


COMMON = (["a", "z", "b", "S", "T", "A", "Z", "I", "ı", "i", "İ", "ə", "Ə", "ß", "ſ", "K", "ǅ", "ʼ", "ʻ", "ª", "中", "א", "ـ"]
          + ["\u0301", "\u0307", "\u20E3", "\uFE0F", "\u0903", "'", "'", "’", "‘", "-", "-", "–", "/", ".", ",", ":", "!", "_"]
          + ["1", "2", "9", "²", "٣", "Ⅷ", " ", " ", "  ", "\t", "\n", "\r", "\r\n", "\u0085", "\u00A0", "\u2028", "\u3000"]
          + ["\u180E", "\u200B", "\u200D", "\u00AD", "😀", "'s", "'S", "'ſ", "'ll", "'lL", "'re", "'VE", "'d", "'m", "'t", "ŉ", "ﬆ"])


def random_texts(count, seed):
    source = random.Random(seed)
    rare = boundaries()
    for _ in range(count):
        pool = source.sample(COMMON, 6) if source.random() < 0.5 else COMMON
        yield "".join(source.choice(rare) if source.random() < 0.2 else source.choice(pool)
                      for _ in range(source.randrange(1, 16)))


def every_code_point():
    for c in range(0x110000):
        if not 0xD800 <= c < 0xE000:
            yield "{0}a{0}b{0}B{0}A{0}b'{0}-{0}1{0}-a{0} {0}\n{0}".format(chr(c))


def blocks(path, size=1 << 16):
    text = pathlib.Path(path).read_bytes().decode("utf-8")
    for i in range(0, len(text), size):
        yield text[i:i + size]


def compare(program, name, pattern, texts):
    """The number of texts and of pieces; fails at the first difference."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str
    texts = list(texts)
    with tempfile.TemporaryFile() as given:
        for text in texts:
            data = text.encode()
            given.write(len(data).to_bytes(4, "little") + data)
        given.seek(0)
        result = subprocess.run([program, name], stdin=given, stdout=subprocess.PIPE, check=True).stdout
    numbers, at, pieces = array.array("I", result), 0, 0
    for text in texts:
        count = numbers[at]
        lengths = numbers[at + 1:at + 1 + count].tolist()
        at += 1 + count
        pieces += count
        expected = [piece for piece, _ in split(text)] if text else []
        if lengths != [len(piece.encode()) for piece in expected]:
            ours, data = [], text.encode()
            for length in lengths:
                ours.append(data[:length].decode(errors="replace"))
                data = data[length:]
            i = next((i for i, (a, b) in enumerate(zip(ours, expected)) if a != b), min(len(ours), len(expected)))
            raise AssertionError(f"ours {ours[max(i - 2, 0):i + 3]!a}, expected {expected[max(i - 2, 0):i + 3]!a}")
    return len(texts), pieces


parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True)
parser.add_argument("--patterns")
parser.add_argument("--random", type=int, default=1_000_000)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("files", nargs="*")
args = parser.parse_args()
known = patterns()
failed = False
for name in args.patterns.split(",") if args.patterns else known:
    program_name = "llama3" if name == "cl100k" else name  # the same scanner
    checks = [(path, blocks(path)) for path in args.files]
    checks += [("every code point", every_code_point()), (f"random, seed {args.seed}", random_texts(args.random, args.seed))]
    for what, texts in checks:
        start = time.time()
        try:
            count, pieces = compare(args.program, program_name, known[name], texts)
            print(f"ok   {name}: {what}: {count} texts, {pieces} pieces, {time.time() - start:.0f} s", flush=True)
        except AssertionError as error:
            failed = True
            print(f"FAIL {name}: {what}: {error}", flush=True)
sys.exit(failed)
