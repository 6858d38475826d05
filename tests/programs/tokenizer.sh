#!/usr/bin/env bash
# ilme-tokenizer as people run it; needs no other program.
. "$(dirname "$0")/common.sh"
T=$BIN/ilme-tokenizer

head -n 300 "$DATA/az_sample.txt" >text.txt
"$T" train --input text.txt --vocab-size 400 --output small 2>/dev/null
"$T" train --input text.txt --vocab-size 900 --output large 2>/dev/null

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
