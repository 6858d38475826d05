#!/usr/bin/env bash
# A model moved to another tokenizer, trained on (embeddings first, then everything), fine-tuned, evaluated, talked to.
. "$(dirname "$0")/common.sh"
small_model
head -n 30 "$DATA/az_chat.jsonl" >chat.jsonl
tail -n 5 "$DATA/az_sample.txt" >held_out.txt
T=$BIN/ilme-tokenizer

# bits MODEL [OPTION...]: bits per byte of the held-out text.
bits() {
  "$BIN/ilme-evaluate" --model "$@" --text held_out.txt --window 64 --stride 32 --json bits.json >/dev/null 2>&1 ||
    fail "ilme-evaluate --model $*"
  grep -o '"bits_per_byte": *[0-9.]*' bits.json | head -n 1 | grep -o '[0-9.]*$'
}
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }

"$T" train --input text.txt --vocab-size 520 --output own >/dev/null 2>&1
"$BIN/ilme-model" adapt --model model --tokenizer own --output adapted >log.txt 2>&1 || fail "adapt: $(cat log.txt)"
"$BIN/ilme-prepare" --tokenizer adapted --input text.txt --output own_shards >/dev/null 2>&1 || fail "prepare"
"$BIN/ilme-pretrain" --model adapted --data own_shards --output trained --steps 60 --embedding-steps 20 --batch-size 4 \
  --sequence-length 64 --learning-rate 5e-3 --embedding-learning-rate 1e-2 --warmup-steps 3 --log-every 10 \
  >log.txt 2>&1 || fail "pretrain: $(cat log.txt)"
grep -q '^phase 2 of 2 from step 21' log.txt || fail "pretrain: $(cat log.txt)"
before=$(bits adapted) after=$(bits trained)
less "$after" "$before" || fail "training raised bits per byte from $before to $after"

"$BIN/ilme-finetune" --model trained --data chat.jsonl --output adapter --steps 10 --batch-size 2 \
  --sequence-length 128 --lora-rank 4 \
  --learning-rate-for '*lora_B*=1e-3' >log.txt 2>&1 || fail "finetune: $(cat log.txt)"
tuned=$(bits trained --adapter adapter)
[ "$tuned" != "$after" ] || fail "the adapter changes nothing"
"$BIN/ilme-model" merge --model trained --adapter adapter --output merged >log.txt 2>&1 || fail "merge: $(cat log.txt)"
merged=$(bits merged)
awk -v a="$tuned" -v b="$merged" 'BEGIN { d = a - b; exit !(d < 0.01 && d > -0.01) }' ||
  fail "bits per byte: $tuned with the adapter, $merged merged"
"$BIN/ilme-chat" --model trained --adapter adapter --prompt 'Salam' --max-tokens 4 >/dev/null 2>log.txt ||
  fail "chat: $(cat log.txt)"
echo "bits per byte: $before adapted, $after trained, $tuned fine-tuned"
