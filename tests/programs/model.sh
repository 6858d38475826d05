#!/usr/bin/env bash
# A model folder through the programs that need no training: init, inspect, evaluate, chat.
. "$(dirname "$0")/common.sh"
small_model
"$BIN/ilme-model" init --tokenizer tokenizer --hidden-size 32 --layers 2 --heads 4 --kv-heads 2 --seed 4 \
  --output other >/dev/null 2>&1
"$BIN/ilme-tokenizer" train --input text.txt --vocab-size 300 --output small >/dev/null 2>&1
"$BIN/ilme-model" init --tokenizer small --hidden-size 16 --layers 1 --heads 2 --output small_model >/dev/null 2>&1

"$BIN/ilme-model" inspect model >inspect.txt
grep -q embed_tokens inspect.txt || fail "inspect does not list the tensors: $(cat inspect.txt)"

# json EXPRESSION: of out.json as `d`.
json() { python3 -c "import json; d = json.load(open('out.json')); print($1)"; }
# has FILE TEXT...: every text is in the file.
has() {
  local file=$1 text
  shift
  for text in "$@"; do grep -qF -- "$text" "$file" || fail "$file lacks \"$text\": $(head -c 2000 "$file")"; done
}

# One model: text, questions, prompts.
E="$BIN/ilme-evaluate --model model --window 64 --stride 32"
tail -n 12 "$DATA/az_heldout.txt" >held.txt
cat >quiz.jsonl <<'END'
{"question": "Azərbaycanın paytaxtı", "choices": ["Bakı", "Gəncə", "Şəki şəhəri"], "answer": 0}
{"context": "Sual: 1 + 1?\nCavab: 2\n", "question": "Sual: 2 + 2?\nCavab:", "choices": ["dörd", "beş"], "answer": "dörd"}
{"question": "", "choices": ["bir", "iki"], "answer": 1}
END
printf '%s\n' 'Bir gün' 'Azərbaycan' >prompts.txt
printf '%s\n' '{"messages": [{"role": "user", "content": "salam"}]}' '{"prompt": "salam"}' >prompts.jsonl
$E --text az=held.txt text.txt --choices quiz.jsonl --prompts prompts.txt chat=prompts.jsonl --limit 5 --max-tokens 8 \
  --json out.json --html out.html >out.txt 2>err.txt || fail "evaluate: $(cat err.txt)"
has out.txt 'bits per byte' 'accuracy, by byte' 'repeated 4-grams of words' '5 documents' '3 questions, chance 44.4 %' \
  '2 prompts' '<|begin_of_text|>' 'the first 5 of each file'
[ "$(json "[t['name'] for t in d['texts']], d['texts'][0]['documents'], len(d['texts'][0]['each_document']['bytes'])")" \
  = "['az', 'text', 'all'] 5 5" ] || fail "texts of out.json: $(json "d['texts']")"
[ "$(json "len(d['choices'][0]['each_question']), len(d['prompts'][1]['each_answer'])")" = "3 2" ] || fail "out.json"
has out.html '<svg' 'bits per byte' '</html>'
# The sum over documents is the figure.
[ "$(json "abs(sum(d['texts'][0]['each_document']['negative_log_likelihood']) / 0.6931471805599453 / d['texts'][0]['bytes']
  / d['texts'][0]['bits_per_byte'] - 1) < 1e-12")" = True ] || fail "bits per byte of out.json"

# Before and after: another model, and one with another tokenizer; a model against itself has no difference.
$E --baseline other --text az=held.txt --choices quiz.jsonl --prompts prompts.txt --max-tokens 8 --json out.json \
  --html out.html >out.txt 2>err.txt || fail "evaluate --baseline: $(cat err.txt)"
has out.txt 'before: other' 'after: model' 'change' 'perplexity'
! grep -q 'not comparable' out.txt || fail "one tokenizer: $(cat out.txt)"
has out.html 'before' 'after' '<svg' '</html>'
[ "$(json "(d['model'], d['baseline']['model'], len(d['changes']))")" = "('model', 'other', 14)" ] || fail "changes"
$E --baseline small_model --text az=held.txt --json out.json >out.txt 2>err.txt || fail "other tokenizer: $(cat err.txt)"
has out.txt 'not comparable'
$E --baseline model --text az=held.txt --choices quiz.jsonl --json out.json >out.txt 2>err.txt || fail "$(cat err.txt)"
[ "$(json "{c['change'] for c in d['changes']}, {c['verdict'] for c in d['changes']}")" = "{0.0} {''}" ] \
  || fail "a model differs from itself: $(cat out.txt)"

# Bad input names the file, the line and the key.
refuses 2 "nothing to evaluate" new $E --json new
refuses 2 "--baseline" new $E --baseline-adapter x --text held.txt --json new
refuses 2 "is called held too" new $E --text held.txt x/held.txt --json new
refuses 2 "absent.txt" new $E --text absent.txt --json new
refuses 2 "window" new $E --text held.txt --window 1 --json new
refuses 2 "stride" new $E --text held.txt --stride 64 --json new
(cat quiz.jsonl && echo '{"question": "x", "choices": ["a", "b"], "answer": 2}') >bad.jsonl
refuses 2 'bad.jsonl:4: key "answer"' new $E --choices bad.jsonl --json new
echo '{"question": "x", "choices": ["a", "a"], "answer": 0}' >bad.jsonl
refuses 2 'bad.jsonl:1: key "choices"' new $E --choices bad.jsonl --json new
echo '{"question": "x"' >bad.jsonl
refuses 2 'bad.jsonl:1' new $E --choices bad.jsonl --json new
echo '{"promt": "x"}' >bad.jsonl
refuses 2 'bad.jsonl:1' new $E --prompts bad.jsonl --json new
: >empty.jsonl
refuses 2 'empty.jsonl' new $E --choices empty.jsonl --json new
cp -r model mismatched && cp tokenizer/tokenizer.json mismatched/ \
  && sed -i 's/"vocab_size": [0-9]*/"vocab_size": 300/' mismatched/config.json
refuses 2 "mismatched" new "$BIN/ilme-evaluate" --model mismatched --text held.txt --json new

# Chat: an answer of at most so many tokens, the same for the same seed.
"$BIN/ilme-chat" --model model --prompt salam --max-tokens 5 --temperature 0.8 --seed 3 >first.txt 2>err.txt || fail "$(cat err.txt)"
"$BIN/ilme-chat" --model model --prompt salam --max-tokens 5 --temperature 0.8 --seed 3 >second.txt 2>err.txt
cmp first.txt second.txt || fail "chat: the same seed gives another answer"
echo "the model folder went through all programs"
