#!/usr/bin/env python3
"""Runs ilme-tokenizer and Hugging Face tokenizers on the same files and prints a table: are the merge lists and the ids equal, and
how long does each take.
usage: compare_tokenizer.py --program build/bin/ilme-tokenizer --corpus FILE... [--size N...] [--tokenizer NAME=PATH...]
needs: tokenizers, numpy; transformers for --transformers"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
from compare_encoding import stretches
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"]


def peer_train(files, size, pattern, out):
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern == "gpt2")
    split = [] if pattern == "gpt2" else [pre_tokenizers.Split(Regex(LLAMA3), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split + [byte_level]) if split else byte_level
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train(files, trainers.BpeTrainer(
        vocab_size=size, min_frequency=0, special_tokens=SPECIALS, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(out)


def merges(path):
    model = json.load(open(path, encoding="utf-8"))["model"]
    return [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]], model["vocab"]


def timed(function, repeat):
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def row(*cells):
    print("  ".join(str(cell).ljust(width) for cell, width in zip(cells, (34, 12, 10, 12, 12, 8))), flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--program", default="build/bin/ilme-tokenizer")
    arguments.add_argument("--corpus", nargs="+", required=True, help="text files; each is trained on and encoded by itself")
    arguments.add_argument("--size", nargs="*", type=int, default=[8192, 32768])
    arguments.add_argument("--pattern", nargs="*", default=["llama3"], choices=["llama3", "gpt2"])
    arguments.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    arguments.add_argument("--tokenizer", nargs="*", default=[], metavar="NAME=PATH", help="tokenizer.json files to encode with")
    arguments.add_argument("--reference", metavar="FILE", help="tokenizer.json with merges that size 32768 must equal")
    arguments.add_argument("--repeat", type=int, default=1)
    arguments.add_argument("--transformers", action="store_true", help="load our folder with transformers as well")
    arguments.add_argument("--json", metavar="FILE")
    options = arguments.parse_args()
    results, failed = [], 0

    def report(what, corpus, equal, ours, peer):
        nonlocal failed
        failed += not equal
        results.append({"what": what, "corpus": corpus, "equal": equal, "ours_seconds": ours, "peer_seconds": peer})
        row(what, os.path.basename(corpus), "yes" if equal else "NO", f"{ours:.3f} s", f"{peer:.3f} s" if peer else "",
            f"{peer / ours:.1f}x" if peer else "")

    def run(*words):
        subprocess.run([options.program, *map(str, words)], check=True, stderr=subprocess.DEVNULL)

    row("what", "corpus", "equal", "ilme", "tokenizers", "ratio")
    with tempfile.TemporaryDirectory() as folder:
        trained = []
        for corpus in options.corpus:
            for pattern in options.pattern:
                for size in options.size:
                    reference = f"{folder}/peer.json"
                    peer = timed(lambda: peer_train([corpus], size, pattern, reference), options.repeat)
                    expected = merges(reference)
                    for threads in options.threads:
                        out = f"{folder}/{pattern}-{size}-{os.path.basename(corpus)}"
                        ours = timed(lambda: run("train", "--input", corpus, "--vocab-size", size, "--output", out, "--pattern",
                                                 pattern, "--special-tokens", ",".join(SPECIALS), "--threads", threads),
                                     options.repeat)
                        got = merges(f"{out}/tokenizer.json")
                        report(f"train {pattern} {size}, {threads} threads", corpus, got == expected, ours, peer)
                        if options.reference and size == 32768 and pattern == "llama3" and corpus == options.corpus[0]:
                            same = got[0] == merges(options.reference)[0]
                            report("merges of the reference file", corpus, same, ours, None)
                    trained.append((f"our {pattern} {size}", f"{out}/tokenizer.json"))
        for name, path in trained[-1:] + [tuple(entry.split("=", 1)) for entry in options.tokenizer]:
            tokenizer = Tokenizer.from_file(path)
            for corpus in options.corpus:
                text = open(corpus, encoding="utf-8", newline="").read()
                expected = None

                def peer_encode():
                    nonlocal expected
                    batch = tokenizer.encode_batch_fast(list(stretches(text)), add_special_tokens=False)
                    expected = numpy.concatenate([numpy.array(part.ids, dtype="<u4") for part in batch])

                peer = timed(peer_encode, 1)
                out = f"{folder}/ids.bin"
                ours = timed(lambda: run("encode", "--tokenizer", path, "--input", corpus, "--output", out, "--special",
                                         "allow"), options.repeat)
                got = numpy.fromfile(out, dtype="<u4")
                report(f"encode {name}", corpus, numpy.array_equal(got, expected), ours, peer)
                back = f"{folder}/back.txt"
                run("decode", "--tokenizer", path, "--input", out, "--output", back)
                if open(back, "rb").read() != open(corpus, "rb").read():
                    failed += 1
                    print(f"  decoding the ids of {corpus} with {name} does not give the file back")
        if options.transformers:
            failed += not check_transformers(run, options.corpus[0], folder)
    if options.json:
        json.dump(results, open(options.json, "w"), indent=2)
    sys.exit(1 if failed else 0)


def check_transformers(run, corpus, folder):
    """Our folder as AutoTokenizer: ids, roles and the chat template."""
    from transformers import AutoTokenizer
    good = True
    for specials, text, mask in (
            ("llama3", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nSalam<|eot_id|><|start_header_id|>assistant"
                       "<|end_header_id|>\n\nAleykum salam<|eot_id|>", "Aleykum salam<|eot_id|>"),
            ("chatml", "<|im_start|>user\n Salam <|im_end|>\n<|im_start|>assistant\nAleykum salam<|im_end|>\n",
             "Aleykum salam<|im_end|>")):
        out = f"{folder}/{specials}"
        run("train", "--input", corpus, "--vocab-size", 8192, "--output", out, "--special-tokens", specials)
        tokenizer = AutoTokenizer.from_pretrained(out)
        messages = [{"role": "user", "content": " Salam "}, {"role": "assistant", "content": "Aleykum salam"}]
        chat = tokenizer.apply_chat_template(messages, tokenize=False)
        encoded = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
        trained = tokenizer.decode([i for i, m in zip(encoded["input_ids"], encoded["assistant_masks"]) if m])
        open(f"{folder}/chat.txt", "w", newline="").write(text)
        run("encode", "--tokenizer", out, "--input", f"{folder}/chat.txt", "--output", f"{folder}/chat.bin", "--special", "allow")
        ids = numpy.fromfile(f"{folder}/chat.bin", dtype="<u4").tolist()
        begins = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        plain = tokenizer("Salam")["input_ids"]
        checks = {"chat text": chat == text, "chat ids": encoded["input_ids"] == ids, "mask": trained == mask,
                  "one BOS": plain[:len(begins)] == begins and plain.count(begins[0] if begins else -1) == len(begins),
                  "roles": tokenizer.eos_token is not None and tokenizer.pad_token is not None}
        print(f"transformers, {specials}: " + ", ".join(f"{name} {'yes' if ok else 'NO'}" for name, ok in checks.items()))
        if not all(checks.values()):
            print(repr(chat), encoded["input_ids"], ids, repr(trained), plain)
            good = False
    return good


if __name__ == "__main__":
    main()
