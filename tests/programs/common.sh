# Shared by the tests of the programs: a scratch folder, the sample cut small, and checks that say what failed.
set -euo pipefail
BIN=$1
DATA=$2
export OMP_NUM_THREADS=1 # threads that wait for each other are slow when tests run side by side
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
cd "$WORK"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# small_model: tokenizer/, shards/ and model/ from the first lines of the sample.
small_model() {
  head -n 40 "$DATA/az_sample.txt" >text.txt
  "$BIN/ilme-tokenizer" train --input text.txt --vocab-size 400 --output tokenizer >/dev/null 2>&1
  "$BIN/ilme-prepare" --tokenizer tokenizer --input text.txt --output shards >/dev/null 2>&1
  "$BIN/ilme-model" init --tokenizer tokenizer --hidden-size 32 --layers 2 --heads 4 --kv-heads 2 --seed 3 \
    --output model >/dev/null 2>&1
}

# losses FOLDER: the losses of metrics.jsonl, one a line.
losses() { grep -o '"loss":[^,}]*' "$1/metrics.jsonl"; }
