#!/usr/bin/env bash
# A model moves to another tokenizer, trains on with it and talks; bad folders are refused.
. "$(dirname "$0")/common.sh"
small_model

M=$BIN/ilme-model
"$BIN/ilme-tokenizer" train --input text.txt --vocab-size 500 --special-tokens chatml --output new >/dev/null 2>&1
adapt() { "$M" adapt --model model --tokenizer new --pad-to 64 "$@"; }
adapt --output moved --json report.json >report.txt
for line in "512 rows of 32 in place of 400" "copied *39[0-9]" "by role *3" "padding *12" "turn end: <|im_end|> from <|eot_id|>"; do
  grep -q -- "$line" report.txt || fail "the report does not say \"$line\": $(cat report.txt)"
done
for key in '"padded": 12' '"rows": 512' '"init": "mean"'; do
  grep -q -- "$key" report.json || fail "the JSON report lacks $key: $(cat report.json)"
done
grep -q '"vocab_size": 512' moved/config.json || fail "config.json keeps the old vocabulary"

# The same seed gives the same bytes, and every method gives a model that can be read.
adapt --output again >/dev/null
cmp moved/model.safetensors again/model.safetensors || fail "two runs differ"
for init in normal copy; do
  adapt --init $init --output $init >/dev/null
  "$BIN/ilme-evaluate" --model $init --text text.txt --window 32 --stride 16 >/dev/null || fail "$init is not evaluated"
done

# It trains on, and its padding takes no part: 12 rows past the vocabulary stay as they are.
"$BIN/ilme-prepare" --tokenizer moved --input text.txt --output moved-shards >/dev/null 2>&1
"$BIN/ilme-pretrain" --model moved --data moved-shards --output trained --steps 2 --batch-size 2 --sequence-length 32 \
  --weight-decay 0 --dtype fp32 --train embeddings >/dev/null 2>&1 || fail "the moved model does not train"
tail_of() { # the last 12 rows of the embedding: the first tensor of the file, 512 rows of 32 floats
  local header
  header=$(od -An -t u8 -N 8 "$1/model.safetensors" | tr -d ' ')
  tail -c +$((8 + header + 1)) "$1/model.safetensors" | head -c $((512 * 32 * 4)) | tail -c $((12 * 32 * 4)) | cksum
}
[ "$(tail_of moved)" = "$(tail_of trained)" ] || fail "training changed the padding"
"$BIN/ilme-chat" --model trained --prompt salam --max-tokens 4 >/dev/null || fail "the moved model does not talk"

refuses 2 "both an input and the output" - "$M" adapt --model model --tokenizer new --output model
refuses 2 "holds files already" - "$M" adapt --model model --tokenizer new --output moved
refuses 2 "absent" out "$M" adapt --model model --tokenizer absent --output out
cp -r model bare && rm bare/tokenizer.json
refuses 2 "model-tokenizer" out "$M" adapt --model bare --tokenizer new --output out
refuses 2 "pad-to" out "$M" adapt --model model --tokenizer new --output out --pad-to 0
