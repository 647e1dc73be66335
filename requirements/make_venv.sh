#!/bin/sh
# Makes the virtual environment $1 with PYTHON, else with the first Python 3.11 or newer that was built with a
# profile, else with the first that runs; says in words which it is, or what is missing.
set -eu
venv="$1"
here="${0%/*}"
candidates="python3.11 python3.12 python3.13 python3 python"

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

has_venv() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

make_with() {
    echo "Making $venv with Python $("$1" "$here/interpreter.py") ..."
    exec "$1" -m venv --clear "$venv"
}

guided_by_a_profile() { # the first on the PATH, also behind another of the same name
    old_ifs="$IFS"
    IFS=:
    set -- $PATH
    IFS="$old_ifs"
    for folder in "$@"; do
        for name in $candidates; do
            python="$folder/$name"
            if [ -x "$python" ] && is_new_enough "$python" && has_venv "$python" &&
                "$python" "$here/interpreter.py" --preferred >/dev/null 2>&1; then
                echo "$python"
                return
            fi
        done
    done
}

for candidate in ${PYTHON:-$(guided_by_a_profile)} $candidates; do
    if is_new_enough "$candidate"; then
        if ! has_venv "$candidate"; then
            echo "$candidate has no venv module. On Debian and Ubuntu: sudo apt-get install python3-venv" >&2
            exit 1
        fi
        make_with "$candidate"
    fi
done

echo "Lockstep needs Python 3.11 or newer, and none was found (tried python3.11, python3.12, python3.13, python3, python)." >&2
echo "Install one, or name it: make ${2:-serve} PYTHON=/path/to/python3" >&2
exit 1
