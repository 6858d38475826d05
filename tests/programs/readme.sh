#!/usr/bin/env bash
# The README shows examples/custom_trainer.cpp as it is.
set -euo pipefail
cd "$(dirname "$0")/../.."
diff <(sed -n '/^```cpp$/,/^```$/p' README.md | sed '1d;$d') examples/custom_trainer.cpp && echo "the README shows the program"
