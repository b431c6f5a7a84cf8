# Shared by quickstart and test (sourced, not run): long steps with progress, their noise in log files.
# shellcheck shell=bash

# The steps' output goes to files here; set by the script that sources this.
steps_log_folder=${steps_log_folder:?set it before sourcing steps.sh}
mkdir -p "$steps_log_folder"

# pause SECONDS: sleep without a child process, which would outlive the script when that is killed.
exec {steps_silent_pipe}<> <(:)
pause() { read -rt "$1" -u "$steps_silent_pipe" || true; }

# Every 15 s one line with the last thing the log says.
steps_tell_progress() {
  local log=$1 began=$SECONDS last
  while kill -0 $$ 2>/dev/null; do  # the script itself: gone after Ctrl-C
    pause 15
    last=$(tail -c 400 "$log" 2>/dev/null | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 | cut -c1-90 || true)
    printf '    %4d s  %s\n' $((SECONDS - began)) "$last"
  done
}

# step NAME WORDS COMMAND...: run it, its output in $steps_log_folder/NAME.log; the log's end is shown when it fails.
step() {
  local name=$1 words=$2 began=$SECONDS status=0 teller
  shift 2
  local log=$steps_log_folder/$name.log
  printf '==> %s\n' "$words"
  steps_tell_progress "$log" 2>/dev/null &
  teller=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  kill "$teller" 2>/dev/null || true
  wait "$teller" 2>/dev/null || true
  if [[ $status -ne 0 ]]; then
    printf '    failed after %d s (exit %d); the end of %s:\n' $((SECONDS - began)) "$status" "$log"
    tail -n 40 "$log" | sed 's/^/    | /'
    return "$status"
  fi
  printf '    done in %d s\n' $((SECONDS - began))
}

# How many compilers at once: one per core, but no more than memory has room for (a LibTorch source takes 1 GB).
steps_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1500000) }' /proc/meminfo)
  [[ $memory -ge 1 ]] || memory=1
  echo $((cores < memory ? cores : memory))
}
