"""A node's status on its way."""

from __future__ import annotations

import pytest

from lockstep.broker.peers.node_status import MAX_BUILD_LENGTH, Status
from tests.support.cases import each_case


@each_case(
    "status",
    [
        Status(),
        Status(True, True, "id", (1, 2), (1,), {0: 3, 2: 9}, {0: 1, 2: 1 | 5 << 32}, 77),
        Status(disk_full=True),
        Status(disk_full=False),
        Status(write_failed=True),
        Status(build="0.2.0 (commit 94a4d5618ee2)"),
        Status(leads={0: 3, 2: 9}, out_of_sync={0: (), 2: (3, 1)}),
        Status(incomplete=(1, 4)),
        Status(founding=True, has_unapplied=False),
        Status(founding=False, has_unapplied=True),
    ],
)
def test_round_trip(status: Status) -> None:
    assert Status.decode(status.encode()) == status


PLAIN = Status().encode()


@each_case(
    "body",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        b"3",
        PLAIN.replace(b"[]", b"[null]"),
        PLAIN.replace(b"[]", b"[-1]"),
        PLAIN.replace(b"[]", b"[2147483648]"),
        PLAIN.replace(b'"cluster":null', b'"cluster":7'),
        PLAIN.replace(b'"full":null', b'"full":1'),
        PLAIN.replace(b'"write_failed":null', b'"write_failed":1'),
        PLAIN.replace(b'"founding":null', b'"founding":1'),
        PLAIN.replace(b'"unapplied":null', b'"unapplied":"no"'),
        PLAIN.replace(b'"build":null', b'"build":7'),
        PLAIN.replace(b'"incomplete":[]', b'"incomplete":null'),
        PLAIN.replace(b'"incomplete":[]', b'"incomplete":[-1]'),
        PLAIN.replace(b'"behind":{}', b'"behind":null'),
        PLAIN.replace(b'"behind":{}', b'"behind":[1]'),
        PLAIN.replace(b'"behind":{}', b'"behind":{"1":2}'),
        PLAIN.replace(b'"behind":{}', b'"behind":{"1":[-1]}'),
        PLAIN.replace(b'"behind":{}', b'"behind":{"1":[2147483648]}'),
        PLAIN.replace(b'"behind":{}', b'"behind":{"-1":[2]}'),
    ],
)
def test_what_is_not_one(body: bytes) -> None:
    with pytest.raises(ValueError):
        Status.decode(body)


def test_an_older_version_does_not_report_whether_its_disk_is_full() -> None:
    assert Status.decode(PLAIN.replace(b',"full":null', b"")).disk_full is None


def test_an_older_version_does_not_report_whether_its_writes_fail() -> None:
    assert Status.decode(PLAIN.replace(b',"write_failed":null', b"")).write_failed is None


def test_an_older_version_reports_neither_founding_nor_entries_to_apply() -> None:
    older = Status.decode(PLAIN.replace(b',"founding":null,"unapplied":null', b""))
    assert (older.founding, older.has_unapplied) == (None, None)


def test_an_older_version_reports_no_missing_records() -> None:
    assert Status.decode(PLAIN.replace(b',"incomplete":[]', b"")).incomplete == ()


def test_an_older_version_reports_no_node_as_out_of_sync() -> None:
    assert Status.decode(PLAIN.replace(b',"behind":{}', b"")) == Status()


def test_the_long_build_text_of_a_later_version_is_cut() -> None:
    assert Status.decode(Status(build="x" * 120, applied=7).encode()) == Status(
        build="x" * MAX_BUILD_LENGTH, applied=7
    )
