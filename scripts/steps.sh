# Sourced by quickstart and test: long steps with progress; their output goes to log files.
# shellcheck shell=bash

# The folder of the log files; set by the sourcing script.
steps_log_folder=${steps_log_folder:?set it before sourcing steps.sh}
mkdir -p "$steps_log_folder"

# pause SECONDS: sleeps without a child process, which would outlive a killed script.
exec {steps_silent_pipe}<> <(:)
pause() { read -rt "$1" -u "$steps_silent_pipe" || true; }

# Prints the last line of the log every 15 s.
steps_tell_progress() {
  local log=$1 began=$SECONDS last
  while kill -0 $$ 2>/dev/null; do  # until the script ends
    pause 15
    last=$(tail -c 400 "$log" 2>/dev/null | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 | cut -c1-90 || true)
    printf '    %4d s  %s\n' $((SECONDS - began)) "$last"
  done
}

# step NAME TEXT COMMAND...: runs the command with its output in $steps_log_folder/NAME.log; prints the log's end on failure.
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

# Parallel compilers: one per core, as far as memory suffices (a LibTorch source takes 1 GB).
steps_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1500000) }' /proc/meminfo)
  [[ $memory -ge 1 ]] || memory=1
  echo $((cores < memory ? cores : memory))
}
