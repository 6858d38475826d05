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

# refuses CODE TEXT OUTPUT COMMAND...: the command ends with CODE, prints one line with TEXT, and leaves no OUTPUT.
refuses() {
  local code=$1 text=$2 output=$3 status=0
  shift 3
  "$@" >out.txt 2>err.txt </dev/null || status=$?
  [ "$status" = "$code" ] || fail "$*: exit code $status, expected $code: $(tail -n 3 err.txt)"
  [ "$(grep -c 'error:' err.txt)" = 1 ] || fail "$*: expected one error line, found: $(cat err.txt)"
  grep -qi -- "$text" err.txt || fail "$*: the error does not say \"$text\": $(cat err.txt)"
  [ "$output" = - ] || [ ! -e "$output" ] || fail "$*: left $output behind"
}

# losses FOLDER: the losses of metrics.jsonl, one a line.
losses() { grep -o '"loss":[^,}]*' "$1/metrics.jsonl"; }
