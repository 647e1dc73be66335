#!/bin/sh
# Makes the virtual environment $1 with the first Python 3.11 or newer that runs; says in words what is missing.
set -eu
venv="$1"

for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        if ! "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
            echo "$candidate has no venv module. On Debian and Ubuntu: sudo apt-get install python3-venv" >&2
            exit 1
        fi
        echo "Making $venv with $("$candidate" --version) ..."
        exec "$candidate" -m venv --clear "$venv"
    fi
done

echo "Lockstep needs Python 3.11 or newer, and none was found (tried python3.11, python3.12, python3.13, python3, python)." >&2
echo "Install one, or name it: make ${2:-serve} PYTHON=/path/to/python3" >&2
exit 1
