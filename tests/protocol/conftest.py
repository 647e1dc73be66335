"""Fixtures that ask Apache Kafka itself: its message classes in a JVM, its message definitions."""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests import kafka_jars

_JUDGE_SOURCE = Path(__file__).parent / "java" / "Judge.java"


class KafkaJudge:
    """A JVM that answers one line per question; see `java/Judge.java`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, question: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the JVM is gone; it was asked {question[:200]!r}"
        return answer.rstrip("\n")

    def rewritten(self, api_key: int, version: int, kind: str, data: bytes) -> str:
        """ "bytes HEX" as Kafka writes what it read, or "error read ..." or "error write ..."."""
        return self.ask(f"message {api_key} {version} {kind} {data.hex()}")


@pytest.fixture(scope="session")
def kafka_judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaJudge]:
    kafka_jars.require_java("javac")
    classes = tmp_path_factory.mktemp("judge")
    compiler = [kafka_jars.java_command("javac"), "-cp", kafka_jars.classpath(), "-d", str(classes)]
    subprocess.run([*compiler, str(_JUDGE_SOURCE)], check=True)
    command = [kafka_jars.java_command("java"), "-Xmx256m", *kafka_jars.SHORT_LIVED]
    process = subprocess.Popen(
        [*command, "-cp", kafka_jars.classpath(classes), "Judge"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield KafkaJudge(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)


@pytest.fixture(scope="session")
def kafka_definitions() -> dict[str, dict[str, Any]]:
    """Kafka's own message definitions, by name: the JSON inside its client jar, comments stripped."""
    jar = next(path for path in kafka_jars.require_java() if path.name.startswith("kafka-clients-"))
    definitions = {}
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.namelist():
            if entry.startswith("common/message/") and entry.endswith(".json"):
                lines = archive.read(entry).decode().splitlines()
                text = "\n".join(line for line in lines if not line.lstrip().startswith("//"))
                definition = json.loads(text)
                definitions[definition["name"]] = definition
    return definitions
