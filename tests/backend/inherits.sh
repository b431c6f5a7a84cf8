#!/bin/sh
# Stands in for a proxy: exit 0 where exactly what a proxy should inherit is there.
[ "$OMP_NUM_THREADS $GPULET_TEST" = "1 here" ] || exit 10
[ "$GPULET_NATIVE_MODELS $GPULET_ONNXRUNTIME" = "on /opt/libonnxruntime.so" ] || exit 15
[ -z "${GPULET_TEST_SECRET+set}" ] || exit 14
[ "$*" = "--control-fd 3 --memory-fd 4 --files-fd 5" ] || exit 11
[ -e /proc/$$/fd/3 ] && [ -e /proc/$$/fd/4 ] && [ -e /proc/$$/fd/5 ] || exit 12
for fd in /proc/$$/fd/*; do
  [ -e "$fd" ] || continue  # the listing's own
  number=${fd##*/}
  # The shell reads this script through a descriptor of its own.
  [ "$number" -le 5 ] || [ "$(readlink "$fd")" = "$(realpath "$0")" ] || exit 13
done
exit 0
