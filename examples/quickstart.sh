#!/usr/bin/env bash
# The whole pipeline on the sample in examples/data: a tokenizer, a small Llama trained on Azerbaijani text, a LoRA chat
# adapter, and a chat answer. Installs and builds what is missing; safe to repeat.
#
# usage: examples/quickstart.sh [--short] [--output DIR]
#   --short       a few steps of each training, as CI runs it
#   --output DIR  where the results go (default build/quickstart, with --short build/quickstart-short)
set -euo pipefail

# Sizes of the sample run: a few minutes of training on 2 cores.
VOCABULARY=2048
MODEL=(--hidden-size 256 --layers 4 --heads 8 --kv-heads 4 --intermediate-size 704 --tied true)
PRETRAIN=(--steps 240 --batch-size 4 --sequence-length 256 --learning-rate 1e-3 --warmup-steps 20 --dtype fp32)
FINETUNE=(--epochs 70 --batch-size 2 --sequence-length 512 --learning-rate 4e-3 --warmup-steps 20 --lora-rank 64
  --lora-dropout 0 --dtype fp32)
CHAT=(--prompt "Balansımı necə yoxlaya bilərəm?" --max-tokens 96 --temperature 0)
SHORT_PRETRAIN=(--steps 12 --batch-size 4 --sequence-length 128 --learning-rate 1e-3 --warmup-steps 4 --dtype fp32)
SHORT_FINETUNE=(--steps 6 --batch-size 4 --sequence-length 128 --learning-rate 1e-3 --warmup-steps 2 --lora-rank 8
  --dtype fp32)

SHORT=no
OUTPUT=
while [ $# -gt 0 ]; do
  case $1 in
    --short) SHORT=yes ;;
    --output) OUTPUT=$(realpath -m "${2:?--output needs a folder}") && shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0" && exit ;;
    *) echo "quickstart.sh: error: unknown option $1; see --help" >&2 && exit 2 ;;
  esac
  shift
done

cd "$(dirname "$0")/.."
. cmake/setup.sh
if [ "$SHORT" = yes ]; then
  PRETRAIN=("${SHORT_PRETRAIN[@]}")
  FINETUNE=("${SHORT_FINETUNE[@]}")
fi
: "${OUTPUT:=build/quickstart$([ "$SHORT" = no ] || echo -short)}"
DATA=examples/data
BIN=build/bin

title() { printf '\n== %s\n' "$*"; }

# run NAME RESULT COMMAND...: runs the command unless its result is there from the same command, and neither the program
# nor a file that it reads is newer. When a result is made anew, so is everything after it.
AGAIN=no
run() {
  local name=$1 result=$2 record=$OUTPUT/.done/$1 seconds=$SECONDS argument fresh=yes
  shift 2
  if [ "$AGAIN" = yes ] || [ ! -e "$result" ] || [ "$(cat "$record" 2>/dev/null)" != "$*" ]; then
    fresh=no
  fi
  for argument in "$@"; do
    if [ -f "$argument" ] && [ "$argument" != "$result" ] && [ "$argument" -nt "$record" ]; then fresh=no; fi
  done
  if [ $fresh = yes ]; then
    echo "$name: already done ($result)"
    return
  fi
  # A training that was interrupted goes on where it was; another command starts afresh.
  [ "$AGAIN" = no ] && [ "$(cat "$record.begun" 2>/dev/null)" = "$*" ] || rm -rf "$result"
  AGAIN=yes
  mkdir -p "$OUTPUT/.done"
  rm -f "$record"
  printf '%s' "$*" >"$record.begun"
  printf '$ %s\n' "$*"
  "$@"
  printf '%s' "$*" >"$record"
  echo "$name: $((SECONDS - seconds)) s"
}

title "Set-up and build"
install_packages
build release ilme_programs
fetch_base_tokenizer

title "Stage 1: a tokenizer for Azerbaijani"
run tokenizer "$OUTPUT/tokenizer" "$BIN/ilme-tokenizer" train --input $DATA/az_sample.txt --vocab-size $VOCABULARY \
  --pattern llama3 --special-tokens llama3 --output "$OUTPUT/tokenizer"
"$BIN/ilme-tokenizer" evaluate ${BASE_TOKENIZER:+--tokenizer llama3="$BASE_TOKENIZER"} \
  --tokenizer ours="$OUTPUT/tokenizer" --text $DATA/az_heldout.txt --words kitab,kitablar,kitablardan \
  --json "$OUTPUT/tokenizer.json"

title "Stage 2: continued pre-training"
run shards "$OUTPUT/shards" "$BIN/ilme-prepare" --tokenizer "$OUTPUT/tokenizer" --input $DATA/az_sample.txt \
  --output "$OUTPUT/shards"
run model "$OUTPUT/model" "$BIN/ilme-model" init --tokenizer "$OUTPUT/tokenizer" "${MODEL[@]}" --seed 1 \
  --output "$OUTPUT/model"
run before "$OUTPUT/before.json" "$BIN/ilme-evaluate" --model "$OUTPUT/model" --text $DATA/az_heldout.txt \
  --json "$OUTPUT/before.json"
run pretrain "$OUTPUT/pretrained" "$BIN/ilme-pretrain" --model "$OUTPUT/model" --data "$OUTPUT/shards" \
  "${PRETRAIN[@]}" --save-every 60 --seed 1 --output "$OUTPUT/pretrained"
run after "$OUTPUT/after.json" "$BIN/ilme-evaluate" --model "$OUTPUT/pretrained" --text $DATA/az_heldout.txt \
  --json "$OUTPUT/after.json"

title "Stage 3: a LoRA adapter that chats"
run finetune "$OUTPUT/adapter" "$BIN/ilme-finetune" --model "$OUTPUT/pretrained" --data $DATA/az_chat.jsonl \
  "${FINETUNE[@]}" --save-every 300 --seed 1 --output "$OUTPUT/adapter"
run merge "$OUTPUT/chat" "$BIN/ilme-model" merge --model "$OUTPUT/pretrained" --adapter "$OUTPUT/adapter" \
  --output "$OUTPUT/chat"

title "Results"
python3 - "$OUTPUT" <<'PYTHON'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
read = lambda name: json.loads((folder / name).read_text())
for row in read("tokenizer.json")["results"]:
    print(f"{'tokens per word, ' + row['name']:34}{row['tokens_per_word']:8.3f}")
for name in "before", "after":
    print(f"{'held-out bits per byte, ' + name:34}{read(name + '.json')['texts'][0]['bits_per_byte']:8.3f}")
PYTHON
printf '\n> %s\n' "${CHAT[1]}"
"$BIN/ilme-chat" --model "$OUTPUT/chat" "${CHAT[@]}"
printf '\nTime: %d s. The model is in %s; chat with it: %s --model %s\n' "$SECONDS" "$OUTPUT/chat" "$BIN/ilme-chat" \
  "$OUTPUT/chat"
