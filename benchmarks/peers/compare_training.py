#!/usr/bin/env python3
"""Trains a byte-level BPE vocabulary with ilme-tokenizer and its rivals, each in a fresh process, in turns, and prints the medians
of wall time, processor time and peak memory of the whole process, and of the call alone where the rival is a library. Rivals that
are not installed are left out, and a line says so.
usage: compare_training.py --program build/bin/ilme-tokenizer --corpus FILE... [--size N...] [--threads N] [--repeat N]"""
import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time

SPECIAL = "<|endoftext|>"
# What each rival runs, with its own way to split where it has only one; merges are identical only between those that split alike.
RIVALS = {
    "gigabpe": ("gigabpe", "GPT-2", """
import gigabpe
call(lambda: gigabpe.train_tokenizer([corpus], size, out, special_tokens=[special], threads=threads,
                                     pretokenizer="bytelevel"))"""),
    "tokenizers": ("tokenizers", "GPT-2", """
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[special], show_progress=False,
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
call(lambda: (tokenizer.train([corpus], trainer), tokenizer.save(out)))"""),
    "gigatoken": ("gigatoken", "GPT-2", """
import gigatoken
call(lambda: gigatoken.train_bpe(gigatoken.TextFileSource([corpus]), size, [special]))"""),
    "rustbpe": ("rustbpe", "GPT-4", """
import rustbpe
call(lambda: rustbpe.Tokenizer().train_from_iterator(open(corpus, encoding="utf-8", newline=""), size))"""),
    "sentencepiece": ("sentencepiece", "own", """
import sentencepiece
call(lambda: sentencepiece.SentencePieceTrainer.train(
    input=corpus, model_prefix=out, vocab_size=size, model_type="bpe", num_threads=threads, minloglevel=2,
    character_coverage=1.0, byte_fallback=True, max_sentence_length=1 << 24, input_sentence_size=0, hard_vocab_limit=False))"""),
}
FRAME = """
import sys, time
corpus, size, out, special, threads, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6]
def call(work):
    start = time.perf_counter()
    work()
    open(seconds, "w").write(str(time.perf_counter() - start))
"""


def run(command, environment):
    """Wall seconds, processor seconds and peak bytes of a process."""
    start = time.perf_counter()
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    _, status, usage = os.wait4(os.posix_spawn(command[0], command, environment, file_actions=quiet), 0)
    wall = time.perf_counter() - start
    if status != 0:
        raise RuntimeError(f"status {status}: {command[0]}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def merges(path):
    with open(path, encoding="utf-8") as file:
        return [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in json.load(file)["model"]["merges"]]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--program", default="build/bin/ilme-tokenizer")
    arguments.add_argument("--corpus", nargs="+", required=True)
    arguments.add_argument("--size", nargs="*", type=int, default=[32768])
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--rivals", nargs="*", default=list(RIVALS), choices=list(RIVALS))
    arguments.add_argument("--json", metavar="FILE")
    options = arguments.parse_args()
    rivals = []
    for name in options.rivals:
        if importlib.util.find_spec(RIVALS[name][0]):
            rivals.append(name)
        else:
            print(f"{name} is not installed: left out")
    environment = dict(os.environ, RAYON_NUM_THREADS=str(options.threads), TOKENIZERS_PARALLELISM="true")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for corpus in options.corpus:
            for size in options.size:
                commands = {f"ilme {pattern}": [options.program, "train", "--input", corpus, "--vocab-size", str(size), "--output",
                                                f"{folder}/{pattern}", "--pattern", pattern, "--special-tokens", SPECIAL,
                                                "--threads", str(options.threads)] for pattern in ("gpt2", "llama3")}
                for name in rivals:
                    commands[name] = [sys.executable, "-c", FRAME + RIVALS[name][2], corpus, str(size), f"{folder}/{name}.json",
                                      SPECIAL, str(options.threads), f"{folder}/{name}.seconds"]
                runs = {name: [] for name in commands}
                for _ in range(options.repeat):
                    for name, command in list(commands.items()):
                        try:
                            measured = run(command, environment)
                        except RuntimeError as error:
                            print(f"{name} failed on {corpus}: {error}: left out")
                            del commands[name], runs[name]
                            continue
                        call = float(open(f"{folder}/{name}.seconds").read()) if name in rivals else measured[0]
                        runs[name].append((*measured, call))
                ours = statistics.median(wall for wall, *_ in runs["ilme gpt2"])
                print(f"{os.path.basename(corpus)}, {size} tokens, {options.threads} threads, medians of {options.repeat}, load "
                      f"{os.getloadavg()[0]:.1f}")
                print(f"  {'':14}{'splits as':10}{'wall':>9}{'call':>9}{'processor':>11}{'peak':>10}{'to ilme':>9}  merges")
                expected = merges(f"{folder}/gpt2/tokenizer.json")
                for name, measured in runs.items():
                    wall, processor, peak, call = (statistics.median(column) for column in zip(*measured))
                    splits = RIVALS[name][1] if name in RIVALS else {"ilme gpt2": "GPT-2", "ilme llama3": "Llama 3"}[name]
                    equal = None
                    if name in ("gigabpe", "tokenizers"):
                        # gigabpe gives ids only to bytes that occur, and so has room for more merges.
                        equal = merges(f"{folder}/{name}.json")[:len(expected)] == expected
                    print(f"  {name:14}{splits:10}{wall:7.3f} s{call:7.3f} s{processor:9.3f} s{peak / 1e6:7.1f} MB"
                          f"{wall / ours:8.2f}x" + ("" if equal is None else "  equal" if equal else "  DIFFER"))
                    results.append({"name": name, "corpus": os.path.basename(corpus), "size": size, "threads": options.threads,
                                    "splits_as": splits, "wall_seconds": wall, "call_seconds": call, "processor_seconds": processor,
                                    "peak_bytes": peak, "wall_to_ilme": wall / ours, "merges_equal": equal})
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
