"""Apache Kafka's own classes read what we build, and we read what they build now."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

import pytest

from compat_tests import kafka_jars
from lockstep.protocol.records import control
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder, Record, iter_records
from tests.protocol.records.test_record import GOLDEN, java_entries, records_of

pytestmark = pytest.mark.java


def golden(*arguments: str) -> list[str]:
    command = [
        kafka_jars.java_command(),
        *kafka_jars.SHORT_LIVED,
        "-cp",
        kafka_jars.classpath(),
        str(GOLDEN / "Golden.java"),
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def sum_of(records: list[Record]) -> int:
    parts: list[bytes] = []
    for record in records:
        parts.append(b"%d %d" % (record.offset, record.timestamp))
        parts += [b"null" if content is None else content for content in (record.key, record.value)]
        for name, content in record.headers:
            parts += [name.encode(), b"null" if content is None else content]
    return zlib.crc32(b"".join(part + b";" for part in parts))


def test_java_reads_what_we_build(tmp_path: Path) -> None:
    records = records_of(java_entries(), 40)
    expected = []
    for codec in Codec:
        builder = BatchBuilder(codec, producer_id=9, producer_epoch=0, base_sequence=0)
        for key, value, timestamp, headers in java_entries():
            builder.append(value, key, timestamp_ms=timestamp, headers=headers)
        (tmp_path / codec.name).write_bytes(builder.build(40))
        expected.append(f"{codec.name.lower()} 40 239 9 false 200 {sum_of(records)}")
    markers = b"".join(
        control.build(
            kind, producer_id=5, producer_epoch=2, coordinator_epoch=11, timestamp_ms=1, base_offset=9
        )
        for kind in (control.ControlKind.COMMIT, control.ControlKind.ABORT)
    )
    (tmp_path / "markers").write_bytes(markers)
    lines = golden("read", *(str(tmp_path / codec.name) for codec in Codec), str(tmp_path / "markers"))
    assert lines[:5] == expected
    assert [line.split()[-2:] for line in lines[5:]] == [["COMMIT", "11"], ["ABORT", "11"]]


def test_we_read_what_java_builds(tmp_path: Path) -> None:
    golden("write", str(tmp_path))
    for codec in Codec:
        batch = (tmp_path / f"{codec.name.lower()}.bin").read_bytes()
        assert list(iter_records(batch)) == records_of(java_entries(), 40)
