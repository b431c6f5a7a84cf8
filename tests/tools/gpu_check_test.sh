#!/usr/bin/env bash
# scripts/gpu-check as its user runs it: without a GPU, as a dry run, and in its shortest form on a fake GPU
# (tests/support/gpu: a batch takes 4 ms on any share, so the figures have no meaning).
#
#   gpu_check_test.sh none|dry|fake BUILD [BUNDLE]     the script of an unpacked bundle, in place of the source's
set -euo pipefail
kind=$1 build=$2 bundle=${3-}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "gpu_check_test: $1" >&2; exit 1; }

export GPULET_PROXY_ENVIRONMENT=GPULET_FAKE_GPUS,GPULET_FAKE_MPS
export GPULET_FAKE_GPUS=$work/gpus GPULET_FAKE_MPS=$work/mps LD_LIBRARY_PATH=$build/fake-gpus PATH=$work/bin:$PATH
mkdir "$work/mps" "$work/bin" "$work/models"

if [[ $kind == none ]]; then
  status=0
  "${bundle:-$root}/scripts/gpu-check" --out "$work/out" --programs "$build/bin" 2>"$work/errors" || status=$?
  [[ $status -eq 2 && $(wc -l <"$work/errors") -eq 1 ]] || fail "without a GPU it ended with $status: $(cat "$work/errors")"
  [[ ! -e $work/out ]] || fail "without a GPU it wrote something"
  exit 0
fi

# All processes that it started are gone: they would have this test's folder among their arguments.
check_left_behind() {
  local process words
  for process in /proc/[0-9]*; do
    words=$( (tr '\0' '\n' <"$process/cmdline") 2>/dev/null) || continue
    if [[ $process != /proc/$$ ]] && grep -q "^$work/out" <<<"$words"; then fail "left behind: $words"; fi
  done
}

# Whether the part has that state, or one of several: ran|cut.
check_part() {
  python3 - "$work/out/learned/results.json" "$1" "$2" <<'END' || fail "part $1 is not '$2'"
import json, sys
file, name, states = sys.argv[1:]
found = [one for one in json.load(open(file))["parts"] if one["part"] == name]
print(name, *((one["state"], one["reason"]) for one in found))
sys.exit(not (len(found) == 1 and found[0]["state"] in states.split("|")))
END
}

# The part has not failed. If it ran, it has left these files.
check_files() {
  local part=$1 file
  shift
  check_part "$part" "ran|cut|not available|skipped"
  (check_part "$part" ran) >/dev/null 2>&1 || return 0
  for file in "$@"; do
    [[ -s $work/out/learned/$file ]] || fail "part $part left no $file"
  done
}

if [[ $kind == dry ]]; then
  status=0
  "${bundle:-$root}/scripts/gpu-check" --dry-run --out "$work/out" --programs "$build/bin" --minutes 0.7 || status=$?
  [[ $status -le 1 ]] || fail "it ended with $status"
  # A machine with much other work cuts parts; those that ran have left their files.
  profile=profiles/simulated/reference-gpu
  check_files profile $profile/{profile.json,latency.csv,utilization.csv,interference.csv,interference.json} logs/logs/interference.log
  check_files fit fit.json slowdowns.csv
  check_files policies policies.json
  check_files formats devices.json
  for part in path changes shares; do check_files $part table.txt; done
  check_part profile "ran|cut"
  check_part answers "not available|skipped"
  check_left_behind
  # A second run goes on: it has the pairs of the first one, and the results of the other parts.
  pairs=$work/out/learned/$profile/interference.csv
  [[ -e $pairs ]] || exit 0
  before=$(wc -l <"$pairs")
  "${bundle:-$root}/scripts/gpu-check" --dry-run --out "$work/out" --programs "$build/bin" --minutes 0.2 --keep --parts profile || true
  after=$(wc -l <"$pairs")
  [[ $after -ge $before ]] || fail "the second run lost pairs: $before, then $after lines"
  check_part answers "not available|skipped"
  check_left_behind
  exit 0
fi

cp "$root/tests/support/gpu/fake_mps_control.sh" "$work/bin/nvidia-cuda-mps-control"
chmod +x "$work/bin/nvidia-cuda-mps-control"
printf 'gpu\nuuid GPU-cccc0000-0000-0000-0000-000000000000\nname NVIDIA H200\n' >"$GPULET_FAKE_GPUS"
model() {
  printf '{"name":"%s","file":"%s.pt","slo_ms":50,"max_batch":8,"inputs":[{"name":"x","type":"FP32","shape":[3]}],' "$1" "$1"
  printf '"outputs":[{"name":"o","type":"FP32","shape":[10]}]}'
  echo "$1" >"$work/models/$1.pt"
}
echo "{\"models\":[$(model small),$(model large)]}" >"$work/models/models.json"
model small >/dev/null
model large >/dev/null

status=0
"${bundle:-$root}/scripts/gpu-check" --out "$work/out" --programs "$build/bin" --proxy "$build/bin/gpulet-proxy-fake-gpu" \
  --models "$work/models/models.json" --minutes 0.6 --quick --partitionings green || status=$?
[[ $status -le 1 ]] || fail "it ended with $status"
table=$work/out/learned/table.txt
[[ $(du -sm "$work/out/learned" | cut -f1) -le 60 ]] || fail "what was learned takes more than 60 MB"
[[ -s $work/out/learned/logs/logs/profile-green.log ]] || fail "no logs are among what was learned"
for part in "small, green, 100 %" "through the whole path, 4 load" "models of the policies" "models profiled, green"; do
  grep -qE "$part" "$table" || fail "the table lacks '$part'"
done
check_part profile ran
check_part answers "ran|not available"
check_left_behind
