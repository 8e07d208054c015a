#!/bin/sh
# Everything `make check` does, given the environment's bin directory. All of it runs, then the verdict.
set -u
cd "$(dirname "$0")/.." || exit 1
bin=$1
failed=

run() {
    echo "check | $*"
    "$@" || failed="$failed
  $*"
}

run "$bin/ruff" check .
run "$bin/ruff" format --check .
run "$bin/lint-imports"
run "$bin/mypy"
# These two import the settings, which want a database and a broker.
run "$bin/python" -m webapp.stack throwaway -- "$bin/python" manage.py makemigrations --check --dry-run
run "$bin/python" -m webapp.stack throwaway -- "$bin/python" manage.py check

if [ -n "$failed" ]; then
    echo "check | failed:$failed"
    exit 1
fi
echo "check | all passed"
