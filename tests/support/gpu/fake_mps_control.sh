#!/bin/sh
# A fake of nvidia-cuda-mps-control. Files in $GPULET_FAKE_MPS set its answers (servers, status, clients, percentage)
# and its failures (refuse, hang, mute, refuse_termination). It records its environment and its commands there.
fake=${GPULET_FAKE_MPS:?}
pid_file=$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid

has() { [ -e "$fake/$1" ]; }
running() {
  daemon=$(cat "$pid_file" 2>/dev/null) && tr '\0' ' ' <"/proc/$daemon/cmdline" 2>/dev/null | grep -q "${0##*/}"
}

if [ "$1" = -d ]; then
  env | grep '^CUDA' | sort >"$fake/environment"
  echo "started as $(id -u):$(id -g)" >>"$fake/commands"
  if has hang; then exec sleep 30; fi
  if has refuse; then echo "told to refuse" && exit 1; fi
  # The daemon is recognised by the program's name in its arguments.
  setsid sh -c 'n=60; while [ $((n = n - 1)) -gt 0 ]; do sleep 1; done' "${0##*/}" </dev/null >/dev/null 2>&1 &
  echo $! >"$pid_file"
  exit 0
fi

read -r line
echo "$line" >>"$fake/commands"
if has mute; then exec sleep 30; fi
if ! running; then echo "Cannot find MPS control daemon process" && exit 1; fi
set -- $line
case $1 in
  get_server_list) cat "$fake/servers" 2>/dev/null ;;
  get_server_status) cat "$fake/status" 2>/dev/null || echo ACTIVE ;;
  get_client_list) cat "$fake/clients" 2>/dev/null ;;
  get_default_active_thread_percentage) cat "$fake/percentage" 2>/dev/null || echo 100.0 ;;
  terminate_client) if has refuse_termination; then echo 1; else echo 0; fi ;;
  quit) kill "$daemon" && while running; do sleep 0.01; done; rm -f "$pid_file" ;;
  *) echo "unknown command $1" && exit 1 ;;
esac
exit 0
