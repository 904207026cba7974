#!/usr/bin/env bash
# Runs one fuzz target from its corpus for some seconds. Usage: run_briefly.sh PROGRAM CORPUS SECONDS
# What makes it fail stays in ./fuzz-failures/ with the program's name; the corpus itself is never changed.
set -euo pipefail
program=$1 corpus=$2 seconds=$3
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
mkdir -p fuzz-failures
"$program" -max_total_time="$seconds" -seed=1 -timeout=10 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 \
    -artifact_prefix="fuzz-failures/$(basename "$program")-" "$found" "$corpus"
