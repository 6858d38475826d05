#!/usr/bin/env bash
# The README shows code that is compiled and tested, as it is: first examples/custom_trainer.cpp, then the parts of
# tests/dist/sharding.test.cpp and tests/text/composition.test.cpp between "README begins" and "README ends".
set -euo pipefail
cd "$(dirname "$0")/../.."
block() { awk -v wanted="$1" '/^```$/ { inside = 0 } inside && n == wanted; /^```cpp$/ { ++n; inside = 1 }' README.md; }
diff <(block 1) examples/custom_trainer.cpp
part() { sed -n '/README begins/,/README ends/p' "$1" | sed '1d;$d; s/^  //'; }
diff <(block 2) <(part tests/dist/sharding.test.cpp)
diff <(block 3) <(part tests/text/composition.test.cpp)
echo "the README shows the program and the parts"
