#!/bin/sh
# Runs a driver as the first process of its container, and passes signals on.
#
# A driver that a newer one has fenced ends with 76. Kubernetes would start it again, it
# would fence the newer one, and the two would take the pipeline from each other for
# ever. So it stays, alive and not ready, until its pod is deleted.
set -u

# Before the driver starts, or a signal could come between the two and end the shell.
trap '[ -z "${!:-}" ] || kill -TERM "$!"' TERM INT
python -P -m tallyweir.spark_jobs "$@" &
driver=$!
code=0
wait "$driver" || code=$?
# A signal ends the wait before the driver has drained.
while kill -0 "$driver" 2>/dev/null; do
    code=0
    wait "$driver" || code=$?
done
[ "$code" -eq 76 ] || exit "$code"
exec python -P "$(dirname "$0")/stay_fenced.py"
