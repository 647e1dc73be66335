#!/usr/bin/env bash
# pytest-kafka 0.8.1 beside kafka-python 3.0.12 (pytest 8.4.2): every pytest run of the environment ends before it collects anything.
#
# pytest-kafka is a plugin (entry point pytest11), so it is imported by each run, whether its fixtures are used or not. It asks for
# "kafka-python" without an upper bound, gets 3.0.12, and imports a name that is not there any more. Remedies: kafka-python below 3, or
# `pytest -p no:pytest_kafka`. Consequence for plugins of one's own: import nothing at load that may be missing.
. "$(dirname "$0")/lib.sh"

python_with pytest==8.4.2 pytest-kafka==0.8.1 kafka-python==3.0.12
echo 'def test_nothing(): pass' >"$WORK/test_nothing.py"
cd "$WORK"
status=0
"$PYTHON" -m pytest -q test_nothing.py >out.txt 2>&1 || status=$?
expect "exit status with the plugin installed" "$status" 1
expect "the last line's exception" "$(tail -1 out.txt | cut -d: -f1)" "ImportError"
status=0
"$PYTHON" -m pytest -q -p no:pytest_kafka test_nothing.py >out.txt 2>&1 || status=$?
expect "exit status without it" "$status" 0
