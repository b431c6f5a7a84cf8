#!/usr/bin/env bash
# scripts/gpu-check as its user runs it: without a GPU, and in its shortest form on a fake GPU (tests/support/gpu: a batch
# takes 4 ms on any share, so the figures have no meaning).
#
#   gpu_check_test.sh none|fake BUILD [BUNDLE]     the script of an unpacked bundle, in place of the source's
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
[[ $(du -sm "$work/out/learned" | cut -f1) -le 16 ]] || fail "what was learned takes more than 16 MB"
[[ -s $work/out/learned/logs/logs/profile-green.log ]] || fail "no logs are among what was learned"
for part in "small, green, 100 %" "through the whole path" "of shares, green|decision to serving, green" "equal, elastic" "elastic over greedy"; do
  grep -qE "$part" "$table" || fail "the table lacks '$part'"
done
if grep -q 'failed:' "$table"; then fail "a part failed"; fi
# All processes that it started are gone: they would have this test's folder among their arguments.
for process in /proc/[0-9]*; do
  words=$( (tr '\0' '\n' <"$process/cmdline") 2>/dev/null) || continue
  if [[ $process != /proc/$$ ]] && grep -q "^$work/out" <<<"$words"; then fail "left behind: $words"; fi
done
