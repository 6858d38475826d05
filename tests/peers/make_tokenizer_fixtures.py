#!/usr/bin/env python3
"""Writes tests/text/fixtures/pipelines.json: a small byte-level BPE tokenizer, what stands around its model in many
files (normalizer, pre_tokenizer, added_tokens, ignore_merges), and the ids and offsets that Hugging Face gives.
usage: make_tokenizer_fixtures.py > pipelines.json      needs: tokenizers 0.23.3"""
import json

from tokenizers import Tokenizer, __version__, models, pre_tokenizers, trainers

LINES = """Azərbaycan dilində sözlər şəkilçilərlə uzanır: kitab, kitablar, kitablarda, kitablardan, kitablarımızdan.
Bakıda 2026-cı ildə 125 min 300 nəfər; BMT-nin məlumatına görə sür’ət 3.14 artdı, I'll see it, don't you?
İŞIQ işıq QIZIL qızıl ÇÖRƏK çörək, ağac, dağ, dəniz, göz, gün, günəş, üzüm, nənə, baba, ana, ata, söz, səs
The words of English are split as they are in the files of Hugging Face, and the books are on the table.""".split("\n")

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def chain(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def norm(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
LOWER, NFC, NFD, ACCENTS = ({"type": t} for t in ("Lowercase", "NFC", "NFD", "StripAccents"))


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


PIPELINES = {
    "GPT-2": (None, byte_level()),
    "RoBERTa": (None, byte_level(True)),
    "Llama 3": (None, chain(split(LLAMA3), byte_level(False, False))),
    "GPT-4 as converted": (None, chain(split(LLAMA3, "Removed", True), byte_level(False, False))),
    "Qwen 2": (NFC, chain(split(QWEN2), byte_level(False, False))),
    "StarCoder, SmolLM2": (None, chain(digits(True), byte_level())),
    "Digits in runs": (None, chain(digits(False), byte_level(True))),
    "DeepSeek": (None, chain(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), byte_level(False, False))),
    "Falcon": (None, chain({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(), digits(False),
                           split("[0-9][0-9][0-9]"))),
    "Claude 2": ({"type": "NFKC"}, byte_level()),
    "NFD": (NFD, byte_level()),
    "NFKD and prefix": ({"type": "NFKD"}, byte_level(True)),
    "uncased": (norm(NFD, LOWER, ACCENTS), byte_level()),
    "NFC lowercase": (norm(NFC, LOWER), chain(split(LLAMA3), byte_level(False, False))),
    "strip": (STRIP, byte_level(True)),
    "replace": (norm(replace("’", "'"), replace(r"\s+", " ", "Regex"), norm({"type": "Prepend", "prepend": "▁"})), byte_level()),
    "whitespace": (None, chain({"type": "Whitespace"}, byte_level())),
    "whitespace split": (None, chain({"type": "WhitespaceSplit"}, byte_level(True))),
    "merged with previous": (None, chain(split(r"\p{P}", "MergedWithPrevious"), byte_level(False, False))),
    "merged with next": (None, chain(split("-", "MergedWithNext", False, "String"), byte_level())),
    "contiguous": (None, chain(split("[aeıioöuüə]", "Contiguous"), byte_level(True, False))),
    "removed": (None, chain(split(" ", "Removed", False, "String"), byte_level())),
    "inverted": (None, chain(split(r"\p{L}+", "MergedWithNext", True), byte_level())),
    "thousands": (None, chain(split(r"(?=(\d{3})+(?!\d))"), byte_level(False, False))),
    "after ByteLevel": (None, chain(byte_level(False, False), split("Ġ", "MergedWithNext", False, "String"), digits(True))),
}
ADDED = [("<|a|>", dict(special=True, normalized=False)), ("<mask>", dict(lstrip=True, special=True, normalized=False)),
         ("İlk", dict(normalized=True)), ("<r>", dict(rstrip=True, normalized=True)),
         ("ata", dict(single_word=True, normalized=False))]
TEXTS = ["", "Bakıda 2026-cı ildə  kitablardan", " İŞIQ I\u0307ŞIQ Çörək e\u0301\u0323 ﬁkir ½ ²", "x <mask> İlk<|a|>ata atalar <r>  son",
         "don’t  I'LL\r\n\r\n\tson. \n", "1234567 (3.14), 12!?", "中文 日本語 한국어 \u1112\u1161\u11AB العربية ٣٤٥ 😀👍🏽 \u200d\u00a0\u3000.",
         "\u0001\u007f\ufeffA\u0130\u0307ı K ǅ ΑΣ", "BMT-nin --a- sür’ət ___ <|a|><|a|>"]

base = Tokenizer(models.BPE())
base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
base.train_from_iterator(LINES, trainers.BpeTrainer(
    vocab_size=360, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
file = json.loads(base.to_str())
size = len(file["model"]["vocab"])
file["decoder"] = byte_level(True)
file["added_tokens"] = [{"id": size + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                         "normalized": False, "special": False, **flags} for i, (content, flags) in enumerate(ADDED)]
pipelines = []
for i, (name, (normalizer, pre_tokenizer)) in enumerate(PIPELINES.items()):
    file["normalizer"], file["pre_tokenizer"] = normalizer, pre_tokenizer
    file["model"]["ignore_merges"] = i % 2 == 1
    tokenizer = Tokenizer.from_str(json.dumps(file))
    cases = []
    for text in TEXTS:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        starts = [len(text[:k].encode()) for k in range(len(text) + 1)]
        cases.append({"ids": encoding.ids, "offsets": [v for a, b in encoding.offsets for v in (starts[a], starts[b])]})
    pipelines.append({"name": name, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
                      "ignore_merges": file["model"]["ignore_merges"], "cases": cases})
file["normalizer"] = None
file["pre_tokenizer"] = byte_level()
print(json.dumps({"made_by": f"tests/peers/make_tokenizer_fixtures.py with tokenizers {__version__}", "texts": TEXTS},
                 ensure_ascii=False)[:-1] + ',\n"tokenizer": ' + json.dumps(file, ensure_ascii=False) + ',\n"pipelines": [\n' +
      ",\n".join(json.dumps(p, ensure_ascii=False) for p in pipelines) + "\n]}")
