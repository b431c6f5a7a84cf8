#!/bin/sh
# shown.sh LIBRARY NAME...: fails unless the shared library exports exactly these names.
set -eu
library=$1
shift
shown=$(nm -D --defined-only --format=posix "$library" | cut -d' ' -f1 | sort)
expected=$(printf '%s\n' "$@" | sort)
[ "$shown" = "$expected" ] && exit 0
printf 'expected\n%s\nfound\n%s\n' "$expected" "$shown"
exit 1
