#!/usr/bin/env python3
"""Encodes the same files with ilme, gigatoken, tokie, tiktoken and Hugging Face tokenizers, each in fresh processes that take
turns, and prints MB/s of the first pass over a file (cold: every word is new) and of the fastest later one (warm), the peak of
memory, and whether the ids are equal.
usage: compare_encoding.py --program build/bin/ilme-benchmark-text-encode-file --tokenizer tokenizer.json... --text FILE...
needs: numpy and whichever of gigatoken, tokie, tiktoken and tokenizers are installed; the others are left out with a line"""
import argparse
import hashlib
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time


def stretches(text, size=100_000):
    """Cuts before a space behind a letter or digit, which is between two pieces by every pattern here: some peers are fastest on
    texts of moderate length."""
    begin = 0
    while begin < len(text):
        end = text.find(" ", begin + size)
        while end > 0 and not text[end - 1].isalnum():
            end = text.find(" ", end + 1)
        end = len(text) if end < 0 else end
        yield text[begin:end]
        begin = end


def peer(name, tokenizer, path, threads):
    """A function that encodes the file and returns its ids; the way to call it that was found fastest."""
    import numpy
    data = open(path, "rb").read()
    if name == "gigatoken":
        import gigatoken
        model = gigatoken.Tokenizer(tokenizer)
        if threads == 1:
            return lambda: model.encode(data)
        return lambda: model.encode_files(path, parallel=True)
    if name == "tokie":
        import tokie
        model = tokie.Tokenizer.from_json(tokenizer)
        return lambda: model.encode_files([path], separator=b"")
    text = data.decode()
    parts = list(stretches(text))
    if name == "tokenizers":
        from tokenizers import Tokenizer
        model = Tokenizer.from_file(tokenizer)
        return lambda: numpy.concatenate([numpy.array(part.ids, dtype="<u4") for part in model.encode_batch_fast(
            parts, add_special_tokens=False)])
    import tiktoken
    description = json.load(open(tokenizer, encoding="utf-8"))
    alphabet = byte_level_alphabet()
    ranks = {bytes(alphabet[c] for c in token): rank for token, rank in description["model"]["vocab"].items()
             if all(c in alphabet for c in token)}
    pattern = split_pattern(description["pre_tokenizer"])
    model = tiktoken.Encoding("file", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda: numpy.concatenate([numpy.array(ids, dtype="<u4")
                                      for ids in model.encode_ordinary_batch(parts, num_threads=threads)])


def byte_level_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


def split_pattern(step):
    for part in step.get("pretokenizers", [step]):
        if part["type"] == "Split":
            return part["pattern"]["Regex"]
    return r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def flat(result):
    import numpy
    if isinstance(result, numpy.ndarray):
        return result.astype("<u4")
    if isinstance(result, tuple):  # ids and lengths
        return flat(result[0])
    if hasattr(result, "ids"):
        return numpy.array(result.ids, dtype="<u4")
    if isinstance(result, list):
        return numpy.concatenate([flat(part) for part in result]) if result and not isinstance(result[0], int) else \
            numpy.array(result, dtype="<u4")
    import awkward
    return awkward.to_numpy(awkward.flatten(result, axis=None)).astype("<u4")


def worker(name, tokenizer, path, threads, passes, out):
    encode = peer(name, tokenizer, path, threads)
    seconds, result = [], None
    for _ in range(passes):
        result = None
        start = time.perf_counter()
        result = encode()
        seconds.append(time.perf_counter() - start)
    ids = flat(result)
    if out:
        open(out, "wb").write(ids.tobytes())
    print(json.dumps({"seconds": seconds, "ids": len(ids),
                      "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def main():
    if sys.argv[1:2] == ["--worker"]:
        name, tokenizer, path, threads, passes, out = sys.argv[2:]
        return worker(name, tokenizer, path, int(threads), int(passes), out)
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--program", default="build/bin/ilme-benchmark-text-encode-file")
    arguments.add_argument("--tokenizer", nargs="+", required=True, help="tokenizer.json files of byte-level BPE")
    arguments.add_argument("--text", nargs="+", required=True)
    arguments.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    arguments.add_argument("--rivals", nargs="*", default=["gigatoken", "tokie", "tiktoken", "tokenizers"])
    arguments.add_argument("--passes", type=int, default=4, help="in one process; the first is cold")
    arguments.add_argument("--repeat", type=int, default=5, help="processes of each, in turns")
    arguments.add_argument("--prefix", default="", help="command to start each process with, as \"taskset -c 1\"")
    arguments.add_argument("--json", metavar="FILE")
    options = arguments.parse_args()
    rivals = [name for name in options.rivals if importlib.util.find_spec(name)]
    for name in set(options.rivals) - set(rivals):
        print(f"{name} is not installed and left out")
    results, failed = [], 0
    columns = (18, 16, 8, 12, 10, 10, 10, 10, 12)

    def row(*cells):
        print("".join(str(cell).ljust(width) for cell, width in zip(cells, columns)), flush=True)

    row("tokenizer", "text", "threads", "program", "ids equal", "cold MB/s", "warm MB/s", "peak MB", "warm: ilme is")
    with tempfile.TemporaryDirectory() as folder:
        for tokenizer in options.tokenizer:
            for path in options.text:
                for threads in options.threads:
                    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
                    runs, digests = {}, {}
                    for turn in range(options.repeat):
                        for name in ["ilme", *rivals]:
                            if turn > 0 and name not in runs:
                                continue
                            # The slow ones would take most of the time.
                            passes = options.passes if name in ("ilme", "gigatoken", "tokie") else 2
                            out = f"{folder}/{name}.bin" if turn == 0 else ""
                            words = [options.program, tokenizer, path, threads, passes, *([out] if out else [])] \
                                if name == "ilme" else \
                                [sys.executable, __file__, "--worker", name, tokenizer, path, threads, passes, out]
                            done = subprocess.run([*options.prefix.split(), *map(str, words)], env=environment,
                                                  capture_output=True, text=True)
                            if done.returncode != 0:
                                print(f"  {name} failed: {done.stderr.strip().splitlines()[-1:]}")
                                continue
                            runs.setdefault(name, []).append(json.loads(done.stdout))
                            if out:
                                digests[name] = hashlib.sha256(open(out, "rb").read()).hexdigest()
                                os.remove(out)
                    size = os.path.getsize(path) / 1e6
                    figures = {name: (statistics.median(size / run["seconds"][0] for run in found),
                                      statistics.median(size / min(run["seconds"][1:]) for run in found),
                                      statistics.median(run["peak_memory_bytes"] for run in found) / 1e6)
                               for name, found in runs.items()}
                    for name, (cold, warm, peak) in figures.items():
                        equal = digests[name] == digests["ilme"]
                        failed += not equal and name == "tokenizers"
                        row(os.path.basename(os.path.dirname(tokenizer)) if os.path.basename(tokenizer) == "tokenizer.json"
                            else os.path.basename(tokenizer)[:-5], os.path.basename(path), threads, name,
                            "yes" if equal else "NO", f"{cold:.1f}", f"{warm:.1f}", f"{peak:.0f}",
                            f"{figures['ilme'][1] / warm:.2f}x" if name != "ilme" else "")
                        results.append({"tokenizer": tokenizer, "text": path, "threads": threads, "program": name,
                                        "ids_equal": equal, "cold_megabytes_per_second": cold,
                                        "warm_megabytes_per_second": warm, "peak_memory_megabytes": peak})
    if options.json:
        json.dump(results, open(options.json, "w"), indent=2)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
