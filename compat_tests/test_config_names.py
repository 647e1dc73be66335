"""The list of Kafka's configuration names that settings are tested with is that of its own definitions."""

from __future__ import annotations

import subprocess

from compat_tests.kafka_jars import SHORT_LIVED, classpath, java_command, require_java
from compat_tests.targets import ROOT

LIST = ROOT / "tests" / "broker" / "settings" / "kafka_4_4_0_names.tsv"
PROGRAM = ROOT / "compat_tests" / "java" / "names" / "ConfigNames.java"


def test_the_list_is_kafkas() -> None:
    require_java("javac")
    command = [java_command(), *SHORT_LIVED, "-cp", classpath(), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == LIST.read_text()
