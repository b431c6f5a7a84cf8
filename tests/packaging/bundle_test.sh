#!/usr/bin/env bash
# A bundle (scripts/make-bundle) as its user finds it: nothing of this machine's environment, a folder that never was.
#
#   bundle_test.sh made BUILD          makes one of those programs, then serves in an empty folder
#   bundle_test.sh here BUNDLE         an archive or a folder, in an empty folder
#   bundle_test.sh debian BUNDLE [SUITE]
#                                      in a bare Debian (12, bookworm): as root, needs debootstrap and its mirror
#   bundle_test.sh torch BUNDLE [PYTHON]
#                                      builds the LibTorch executor as well, for that Python's torch (/usr/bin/python3), and
#                                      has it run models: minutes
set -euo pipefail
kind=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
started=()
clean_up() {
  [[ -z ${inside-} ]] || umount "$inside/proc" 2>/dev/null || true
  for process in "${started[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean_up EXIT
fail() { echo "bundle_test: $1" >&2; exit 1; }

# Sets bundle: the bundle's copy below $1, a folder with a space in its name.
unpack() {
  mkdir -p "$1"
  if [[ -d $2 ]]; then
    cp -R "$2" "$1/"
    bundle=$1/$(basename "$2")
  else
    tar -C "$1" -xf "$2"
    bundle=$1/$(basename "$2" .tar.xz)
  fi
  [[ -x $bundle/bin/gpulet ]] || fail "$2 holds no $(basename "$bundle")/bin/gpulet"
}

# The simulated device serves a few hundred requests. $1: the bundle, as its programs see it.
serve_simulated() {
  local seen=$1 site=$2 port answered try frontend backend status=0
  # Other ports than those of the sample, where something may serve, and below those that the kernel gives to clients.
  for try in {1..50}; do
    port=$((20000 + RANDOM % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  for file in "$site"/*.json; do
    sed -i "s/127.0.0.1:7000/127.0.0.1:$port/; s/127.0.0.1:7001/127.0.0.1:$((port + 1))/; s/127.0.0.1:800\([012]\)/127.0.0.1:$((port / 10 + 2))\1/" "$file"
  done
  local target=127.0.0.1:$port in=$seen/examples/simulated
  for file in frontend backend; do
    "${bare[@]}" "$seen/bin/gpulet" config check "$in/$file.json" >"$work/said" 2>&1 || fail "config check: $(cat "$work/said")"
  done
  "${bare[@]}" "$seen/bin/gpulet-frontend" --config "$in/frontend.json" >"$work/frontend.log" 2>&1 &
  frontend=$!
  "${bare[@]}" "$seen/bin/gpulet-backend" --config "$in/backend.json" >"$work/backend.log" 2>&1 &
  backend=$!
  started+=("$frontend" "$backend")
  for try in {1..300}; do
    "${bare[@]}" "$seen/bin/gpulet" status --target "$target" --json >"$work/status" 2>/dev/null && grep -q '"state": *"serving"' "$work/status" && break
    kill -0 "$frontend" && kill -0 "$backend" || fail "a daemon ended: $(tail -n 3 "$work/frontend.log" "$work/backend.log")"
    [[ $try -lt 300 ]] || fail "not serving: $(tail -n 3 "$work/frontend.log" "$work/backend.log")"
    sleep 0.1
  done
  "${bare[@]}" "$seen/bin/gpulet" load --target "$target" --workload "$in/workload.json" --seconds 2 --json >"$work/load" ||
    fail "load: $(cat "$work/load")"
  answered=$(grep -oE '"served": *[0-9]+' "$work/load" | grep -oE '[0-9]+' | sort -n | tail -n 1)
  [[ ${answered:-0} -ge 20 ]] || fail "only ${answered:-0} requests were served: $(cat "$work/load")"
  kill -TERM "$backend" "$frontend"
  wait "$backend" || status=$?
  [[ $status -eq 0 ]] || fail "the backend ended with $status"
  wait "$frontend" || status=$?
  [[ $status -eq 0 ]] || fail "the frontend ended with $status"
  started=()
}

# `gpulet serve` of a small ONNX file, and the request that it prints, sent from this machine. $1: the bundle, as its programs see
# it; $2: the folder of the file, $3: the same, as they see it.
serve_onnx() {
  local server try answer status=0
  PYTHONPATH=$root/tests/tools python3 -c 'import serve_program_test, sys; open(sys.argv[1], "wb").write(serve_program_test.model())' \
    "$2/echo.onnx"
  "${bare[@]}" "$1/bin/gpulet" serve "$3/echo.onnx" --slo 100ms --cache "$3/cache" --measure-seconds 2 >"$work/serve" 2>"$work/serve.errors" &
  server=$!
  started+=("$server")
  for try in {1..600}; do
    grep -q 'Ctrl-C stops' "$work/serve" && break
    kill -0 "$server" 2>/dev/null || fail "gpulet serve ended: $(cat "$work/serve.errors")"
    [[ $try -lt 600 ]] || fail "gpulet serve does not serve: $(cat "$work/serve" "$work/serve.errors")"
    sleep 0.1
  done
  answer=$(sed -n '/with curl:/,/in Python:/{/:$/d;p}' "$work/serve" | sh) || fail "the printed request fails: $answer"
  [[ $answer == *'"scores"'* ]] || fail "the answer to the printed request: $answer"
  kill -TERM "$server"
  wait "$server" || status=$?
  [[ $status -eq 0 ]] || fail "gpulet serve ended with $status"
  started=()
}

try_programs() {
  local program foreign of_the_machine='(libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s)\.so'
  for program in gpulet gpulet-frontend gpulet-backend; do
    "${bare[@]}" "$1/bin/$program" --help >"$work/said" || fail "$program --help: $(cat "$work/said")"
    "${bare[@]}" "$1/bin/$program" --version >"$work/said" || fail "$program --version: $(cat "$work/said")"
    [[ ! -f $bundle/lib/gpulet/libonnxruntime.so.1 ]] || grep -q '^ONNX Runtime: [0-9]' "$work/said" ||
      fail "$program finds no ONNX Runtime: $(cat "$work/said")"
    # This machine may have the same libraries: the bundle's are taken.
    "${bare[@]}" LD_TRACE_LOADED_OBJECTS=1 "$1/bin/$program" >"$work/said"
    foreign=$(grep ' => ' "$work/said" | grep -vE "^[[:space:]]*$of_the_machine" | grep -vF " => $1/" || true)
    [[ -z $foreign ]] || fail "$program takes libraries from elsewhere: $foreign"
  done
}

case $kind in
  made)
    command -v patchelf >/dev/null || { echo "bundle_test: there is no patchelf; skipped"; exit 77; }
    "$root/scripts/make-bundle" --folder --build "$2" --out "$work/out" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
    unpack "$work/an empty folder" "$work/out"/gpulet-*
    rm -rf "$work/out"
    ;;
  here | torch) unpack "$work/an empty folder" "$2" ;;
  debian)
    [[ $(id -u) -eq 0 ]] || fail "a bare Debian is made as root"
    debootstrap --variant=minbase "${3:-bookworm}" "$work/debian" >"$work/log" 2>&1 || fail "debootstrap: $(tail -n 5 "$work/log")"
    unpack "$work/debian/opt" "$2"
    inside=$work/debian
    mount -t proc proc "$inside/proc"  # the dynamic linker asks there where a program lies
    ;;
  *) fail "made, here, debian or torch, not '$kind'" ;;
esac

# What a command begins with to run there, without this environment.
bare=(env -i HOME="$work" PATH=/usr/bin:/bin)
[[ -z ${inside-} ]] || bare=(chroot "$inside" /usr/bin/env -i HOME=/ PATH=/usr/bin:/bin)
seen=${bundle#"${inside-}"}
try_programs "$seen"
serve_simulated "$seen" "$bundle/examples/simulated"
if [[ -f $bundle/lib/gpulet/libonnxruntime.so.1 ]]; then
  mkdir "$bundle/models/here"
  serve_onnx "$seen" "$bundle/models/here" "$seen/models/here"
fi

if [[ -x $bundle/bin/gpulet-proxy && $kind != torch ]]; then
  # Plain words where there is no executor, and where there is no PyTorch either.
  "${bare[@]}" "$seen/bin/gpulet-kernels" try >"$work/said" 2>&1 && fail "an executor was found that nobody has built"
  grep -q 'gpulet torch-setup' "$work/said" || fail "without an executor: $(cat "$work/said")"
  "${bare[@]}" "$seen/bin/gpulet" torch-setup --python /nowhere/python3 >"$work/said" 2>&1 && fail "a Python that is not there has torch"
  grep -q '/nowhere/python3' "$work/said" || fail "without PyTorch: $(cat "$work/said")"
  if [[ $kind != debian ]]; then
    # A LibTorch without Python that has neither of the files with its version, and is too old.
    mkdir -p "$work/torch/lib" "$work/torch/include/torch"
    touch "$work"/torch/lib/lib{c10,torch_cpu}.so "$work/torch/include/torch/script.h"
    "${bare[@]}" "$seen/bin/gpulet" torch-setup --torch "$work/torch" >"$work/said" 2>&1 && fail "an empty LibTorch was taken"
    grep -q 'libc10.so' "$work/said" || fail "with an empty LibTorch: $(cat "$work/said")"
  fi
fi
if [[ $kind == torch ]]; then
  "${bare[@]}" "$seen/bin/gpulet" torch-setup --python "${3:-/usr/bin/python3}" | tee "$work/said"
  "${bare[@]}" "$seen/bin/gpulet" torch-setup --check --python "${3:-/usr/bin/python3}" >"$work/said" || fail "$(cat "$work/said")"
  "${bare[@]}" "${3:-/usr/bin/python3}" "$seen/scripts/export_models.py" --only lenet >"$work/said" 2>&1 || fail "$(cat "$work/said")"
  "${bare[@]}" "$seen/bin/gpulet" profile run --device cpu:0 --models "$seen/config/models.json" --only lenet --sizes 100 --batches 1,4 \
    --seconds-per-cell 0.1 --name cpu-core --out "$work/profiles" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
  grep -q '^lenet,4,100,' "$work/profiles/cpu-core/latency.csv" || fail "lenet was not measured: $(cat "$work/profiles"/*/latency.csv)"
fi
echo "bundle_test $kind: ok"
