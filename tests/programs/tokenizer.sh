#!/usr/bin/env bash
# ilme-tokenizer as people run it; needs no other program.
. "$(dirname "$0")/common.sh"
T=$BIN/ilme-tokenizer

head -n 300 "$DATA/az_sample.txt" >text.txt
"$T" train --input text.txt --vocab-size 400 --output small 2>/dev/null
"$T" train --input text.txt --vocab-size 900 --output large 2>/dev/null

# train: the same result from any memory, on any number of threads, in any number of files.
for i in 1 2 3 4 5 6 7 8; do cat "$DATA/az_sample.txt"; done >corpus.txt
"$T" train --input corpus.txt --vocab-size 500 --output plenty --memory-budget 0 --threads 1 2>/dev/null
"$T" train --input corpus.txt --vocab-size 500 --output little --memory-budget 56MiB --threads 2 2>/dev/null
diff plenty/tokenizer.json little/tokenizer.json || fail "train: the memory budget changes the result"
refuses 2 "expected at least" new "$T" train --input corpus.txt --vocab-size 500 --output new --memory-budget 20MB --threads 2
refuses 2 "expected a size" new "$T" train --input corpus.txt --vocab-size 500 --output new --memory-budget much
refuses 2 "from 1% to 100%" new "$T" train --input corpus.txt --vocab-size 500 --output new --memory-budget 120%
printf 'e\u0301 e\u0301 \u00e9 \u00e9' >forms.txt
"$T" train --input forms.txt --vocab-size 258 --special-tokens none --normalizer nfc --output nfc 2>/dev/null
grep -q '"normalizer": {"type":"NFC"}' nfc/tokenizer.json || fail "train: the normalizer is not in the file"

# extend: old ids stay, and the change is reported.
"$T" extend --base small --input "$DATA/az_sample.txt" --add 100 --output extended --report-text text.txt --json change.json \
  2>/dev/null
grep -q '"new_tokens": 100' change.json || fail "extend: $(cat change.json)"
grep -q '": 499,\?$' extended/tokenizer.json || fail "extend: no id 499"
"$T" encode --tokenizer extended --input text.txt --output ids.bin 2>/dev/null
"$T" decode --tokenizer extended --input ids.bin --output back.txt 2>/dev/null
cmp text.txt back.txt || fail "extend: decoding does not give the text back"
refuses 2 absent new "$T" extend --base small --input text.txt --add 10 --output new --report-text absent.txt
refuses 2 "--add" new "$T" extend --base small --input text.txt --add 0 --output new

# evaluate: a table, the same figures as JSON on any number of threads, and a page.
printf 'salam dünya\nmən gəldim\n' >az.sentences
printf 'hello world\nI came\n' >en.sentences
for threads in 1 3; do
  "$T" evaluate --tokenizer small=small large=large --text text.txt "$DATA/az_heldout.txt" --threads $threads \
    --parallel az.sentences:en.sentences --words kitablardan,salam --json $threads.json --html page.html >table.txt
done
diff <(grep -v -e cold -e warm -e threads 1.json) <(grep -v -e cold -e warm -e threads 3.json) ||
  fail "evaluate: the figures depend on the number of threads"
grep -q '^  large  *900 ' table.txt || fail "evaluate: no row for the tokenizer: $(cat table.txt)"
grep -q 'az.sentences and en.sentences: 2 parallel sentences' table.txt || fail "evaluate: no parallel text: $(cat table.txt)"
[ "$(wc -L <table.txt)" -le 120 ] || fail "evaluate: the table is $(wc -L <table.txt) columns wide"
grep -q '<strong>large</strong> needs the fewest tokens' page.html || fail "evaluate: the page has no summary"
printf 'salam dünya' | "$T" evaluate --tokenizer small --text - | grep -q 'standard input: 2 words' ||
  fail "evaluate: standard input"
gzip -k text.txt
"$T" evaluate --tokenizer small --text text.txt.gz --json gz.json >/dev/null
diff <(grep '"tokens"' gz.json) <(grep '"tokens"' 1.json | head -n 1) || fail "evaluate: .gz differs"

# evaluate: what is refused.
E="$T evaluate"
: >empty.txt
printf '\n \n' >blank.txt
printf 'a\tb\nc\n' >pairs.tsv
refuses 2 "empty.txt: is empty" new $E --tokenizer small --text empty.txt --json new
refuses 2 "blank.txt: is empty" new $E --tokenizer small --text blank.txt --json new
refuses 2 absent.txt new $E --tokenizer small --text absent.txt --json new
refuses 2 absent new $E --tokenizer x=absent --text text.txt --json new
refuses 2 "expected NAME=PATH" new $E --tokenizer x= --text text.txt --json new
refuses 2 "expected NAME=PATH" new $E --tokenizer =small --text text.txt --json new
refuses 2 "is called x too" new $E --tokenizer x=small x=large --text text.txt --json new
refuses 2 "required" new $E --tokenizer small --json new
refuses 2 "pairs.tsv:2: has 1 column" new $E --tokenizer small --parallel pairs.tsv --json new
echo extra >>en.sentences
refuses 2 "en.sentences:3: has no partner" new $E --tokenizer small --parallel az.sentences:en.sentences --json new
refuses 2 "is a folder" new $E --tokenizer small --text text.txt --html small
echo "ilme-tokenizer does as it should"
