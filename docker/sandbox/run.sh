#!/bin/sh
# Starts the hardened container: no capability, no network, no writable file, nothing privileged.
# docker/sandbox/run.sh check            docker/sandbox/run.sh bench            docker/sandbox/run.sh examine - < program.py
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec "${OCI:-docker}" run --rm --interactive \
  --cap-drop=ALL --security-opt=no-new-privileges \
  --security-opt="seccomp=${here}/seccomp.json" \
  --network=none --read-only --ipc=private \
  --pids-limit="${PIDS:-512}" --memory="${MEMORY:-4g}" --memory-swap="${MEMORY:-4g}" --cpus="${CPUS:-2}" \
  --ulimit core=0 --ulimit nofile=4096 \
  "${IMAGE:-spadework-sandbox}" "$@"
