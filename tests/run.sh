#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests. Arguments go to ctest: tests/run.sh -R tokenizer
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/setup.sh
install_packages
build release all
exec ctest --test-dir build --output-on-failure -j "$(nproc)" "$@"
