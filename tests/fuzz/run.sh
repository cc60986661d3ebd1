#!/bin/sh
# Fuzzes the loader of dumps: half of the given minutes (60) with atheris, half with Hypothesis.
# Findings lie in the folder FINDINGS (a new one by default); see README.md for what to do then.
set -eu
minutes=${1:-60}
half=$((minutes / 2))
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python}
findings=${FINDINGS:-$(mktemp -d)}
echo "findings go to $findings"
cd "$findings"
"$python" "$here/fuzz_dumps.py" "-max_total_time=$((half * 60))" -print_final_stats=1 corpus
HANGLAB_FUZZ_MINUTES=$half "$python" -m pytest "$here" -m long -s -q
