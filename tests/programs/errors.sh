#!/usr/bin/env bash
# Bad input: one clear line, exit code 2 (input) or 1 (a failure while running), nothing under the final name.
. "$(dirname "$0")/common.sh"
small_model

T=$BIN/ilme-tokenizer
# pretrain [MODEL [DATA]]: the command, with good values for what is not given.
pretrain() { echo "$BIN/ilme-pretrain --model ${1:-model} --data ${2:-shards} --sequence-length 32"; }
P=$(pretrain)
F="$BIN/ilme-finetune --model model --steps 2 --batch-size 2 --sequence-length 64 --lora-rank 2"

# Files that are not there, empty, or too small a vocabulary.
refuses 2 absent.txt new "$T" train --input absent.txt --vocab-size 400 --output new
: >empty.txt
refuses 2 empty new "$BIN/ilme-prepare" --tokenizer tokenizer --input empty.txt --output new
refuses 2 "vocabulary size" new "$T" train --input text.txt --vocab-size 255 --output new
refuses 2 absent new $(pretrain absent) --output new
refuses 2 absent new $(pretrain model absent) --output new

# Mistyped options and impossible values.
refuses 2 "did you mean --vocab-size" new "$T" train --input text.txt --vocab-sise 400 --output new
refuses 2 "unknown command" - "$T" trian
refuses 2 steps new $P --output new --steps -3
refuses 2 "batch size" new $P --output new --batch-size 0
refuses 2 accumulate new $P --output new --accumulate 0
refuses 2 learning new $P --output new --learning-rate nan
refuses 2 schedule new $P --output new --schedule cosin
refuses 2 "heads" new "$BIN/ilme-model" init --tokenizer tokenizer --hidden-size 30 --layers 1 --heads 4 --output new
refuses 2 'nrom.*matches no parameter.*model.layers' new $P --output new --learning-rate-for '*nrom*=1e-4'
refuses 2 PATTERN=X new $P --output new --weight-decay-for '*norm*'
refuses 2 PATTERN=X new $P --output new --weight-decay-for '*norm*=0.1x'
refuses 2 "embedding-steps is 5.*5 steps" new $P --output new --steps 5 --embedding-steps 5
refuses 2 "embedding-steps" new $P --output new --steps 5 --embedding-steps 2 --train embeddings
refuses 2 "embedding-learning-rate" new $F --output new --data "$DATA/az_chat.jsonl" --embedding-learning-rate 1e-3

refuses 2 "max-shard-size" new "$BIN/ilme-model" init --tokenizer tokenizer --hidden-size 32 --layers 1 --heads 4 \
  --max-shard-size 0 --output new
refuses 2 "max-shard-size" new $P --output new --max-shard-size many

# Formats of others.
mkdir meta && touch meta/consolidated.00.pth meta/params.json
refuses 2 convert_llama_weights_to_hf new "$BIN/ilme-model" convert --model meta --output new
cp -r model pickle && mv pickle/model.safetensors pickle/pytorch_model.bin
refuses 2 save_pretrained new "$BIN/ilme-model" convert --model pickle --output new

# Damaged files.
cp -r model broken && truncate -s -5 broken/model.safetensors
refuses 2 broken/model.safetensors new $(pretrain broken) --output new
cp -r model garbage && head -c 4000 /dev/urandom >garbage/model.safetensors
refuses 2 garbage/model.safetensors - "$BIN/ilme-evaluate" --model garbage --text text.txt
cp -r model halved && head -c 100 model/config.json >halved/config.json
refuses 2 halved/config.json - "$BIN/ilme-chat" --model halved --prompt x
cp -r shards cut && truncate -s -2 cut/shard-00000.bin
refuses 2 cut/shard-00000.bin new $(pretrain model cut) --output new
"$T" train --input text.txt --vocab-size 300 --output other >/dev/null 2>&1
"$BIN/ilme-prepare" --tokenizer other --input text.txt --output foreign >/dev/null 2>&1
refuses 2 tokenizer new $(pretrain model foreign) --output new

# Mixtures: what follows the last colon is a weight, unless the folder's own name has the colon.
refuses 2 "weight x, expected a positive number" new $(pretrain model shards:x) --output new
refuses 2 "weight 0, expected a positive number" new $(pretrain model shards:0) --output new
refuses 2 "absent: no such folder" new $(pretrain model absent:3) --output new
refuses 2 "absent:x: no such folder" new $(pretrain model absent:x) --output new
refuses 2 "foreign: .*tokenizer" new $(pretrain model "shards:3 foreign:1") --output new
cp -r shards co:lon
refuses 2 "co:lon has no weight" new $(pretrain model "shards:3 co:lon") --output new
refuses 2 "co:lon has none of the" new $(pretrain model "shards:3 co:lon:1e-9") --output new
$(pretrain model "shards:3 co:lon:1") --output mixed --steps 1 >/dev/null 2>log.txt || fail "a mixture: $(cat log.txt)"
grep -q '^co:lon: 25 % of the rows, 0.5 times an epoch of' log.txt || fail "the shares are not said: $(cat log.txt)"

# Conversations.
printf '%s\n' '{"messages":[{"role":"user","content":"salam"},{"role":"assistant","content":"salam"}]}' \
  '{"messages":[{"role":"user","content":"salam"}]}' >unanswered.jsonl
refuses 2 unanswered.jsonl:2 new $F --output new --data unanswered.jsonl
echo '{"messages": [' >torn.jsonl
refuses 2 torn.jsonl:1 new $F --output new --data torn.jsonl
echo '{"messages":[{"role":"robot","content":"x"},{"role":"assistant","content":"y"}]}' >role.jsonl
refuses 2 robot new $F --output new --data role.jsonl
refuses 2 "target" new $F --output new --data "$DATA/az_chat.jsonl" --lora-targets nothing
printf '{"steps": 2, "batchsize": 3}' >options.json
refuses 2 batch-size new $P --output new --config options.json

# Invalid UTF-8 is kept as bytes.
printf 'salam \xff\xfe d\xc9\n' >bytes.txt
"$T" encode --tokenizer tokenizer --input bytes.txt --output bytes.bin 2>/dev/null
"$T" decode --tokenizer tokenizer --input bytes.bin --output bytes.out 2>/dev/null
cmp bytes.txt bytes.out || fail "bytes that are not UTF-8 do not survive"
"$T" train --input bytes.txt --vocab-size 300 --output bytes_tokenizer >/dev/null 2>&1 || fail "training on invalid UTF-8"

# A full disk.
mkdir full
if mount -t tmpfs -o size=64k none full 2>/dev/null; then
  status=0
  "$BIN/ilme-model" init --tokenizer tokenizer --hidden-size 64 --layers 2 --heads 4 --output full/model >out.txt 2>err.txt || status=$?
  left=$(ls -A full)
  umount full
  [ "$status" = 1 ] || fail "full disk: exit code $status, expected 1: $(cat err.txt)"
  grep -q 'No space left' err.txt || fail "full disk: $(cat err.txt)"
  [ -z "$left" ] || fail "full disk: left $left behind"
else
  echo "note: a full disk was not tried, mounting a tmpfs needs root"
fi
echo "all refused as they should be"
