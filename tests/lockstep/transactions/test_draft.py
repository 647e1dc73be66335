"""What an application may say, and what is refused before anything is sent."""

from __future__ import annotations

import pytest

from lockstep.transactions import Draft, NotAppended, RequestId, lock
from lockstep.transactions.draft import append_of
from tests.support.cases import each_case


def test_a_draft_collects_by_partition() -> None:
    draft = Draft(1, 4)
    draft.add(b"v", key=b"k", headers=[("h", b"x")])
    draft.write_lock("a", b"b")
    draft.read_lock("c", partition=3)
    draft.append_lock("d")
    draft.expect_offset(7)
    own, other = draft.parts[1], draft.parts[3]
    assert own.records[0] == (b"v", b"k", (("h", b"x"),)) and own.expected_offset == 7
    assert (own.write_locks, own.append_locks, other.read_locks) == ([b"a", b"b"], [b"d"], [b"c"])


@each_case("name", ["", "two\nlines", "x" * 1025, b"\n"])
def test_lock_names_that_cannot_be(name: str | bytes) -> None:
    with pytest.raises(ValueError, match="1 to 1024 bytes"):
        Draft(0, 1).write_lock(name)


def test_too_many_locks() -> None:
    draft = Draft(0, 1)
    draft.write_lock(*(f"{number}" for number in range(256)))
    with pytest.raises(ValueError, match="256 are allowed"):
        draft.read_lock("one more")


def test_headers_of_our_own_and_partitions_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="own"):
        Draft(0, 1).add(b"v", headers=[("lockstep-hwm", b"1")])
    with pytest.raises(ValueError, match="0 to 0"):
        Draft(0, 1).add(b"v", partition=1)


def test_request_ids() -> None:
    request = RequestId("ab-c", 3, 9)
    assert str(request) == "ab-c/3/9" and RequestId.parse(b"ab-c/3/9") == request
    for wrong in (None, b"", b"a/b/c", b"a/1", b"a/1/2/3", b"/1/2"):
        assert RequestId.parse(wrong) is None


def test_locks_of_things() -> None:
    assert lock("account", 12) == b"account/12" == lock("account", "12")
    for wrong in ((b"account", 12), ("account", b"12"), ("account", None)):
        with pytest.raises(TypeError):
            lock(*wrong)


@each_case(
    "wrong", [{"value": "text"}, {"key": "text"}, {"headers": [("h", "text")]}, {"headers": {b"h": b"v"}}]
)
def test_text_where_bytes_belong(wrong: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=r"bytes"):
        Draft(0, 1).add(**{"value": b"v", **wrong})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"str or bytes"):
        Draft(0, 1).write_lock(1)  # type: ignore[arg-type]


def test_headers_in_any_form() -> None:
    draft = Draft(0, 1)
    draft.add(b"v", headers={"a": b"1", "b": None})
    draft.add(b"v", headers=[["a", b"1"], ("b", None)])  # type: ignore[list-item]
    first, second = draft.parts[0].records
    assert first.headers == second.headers == (("a", b"1"), ("b", None))


REQUEST = RequestId("me", 0, 1)
HWMS = {0: 5, 1: 6, 2: 7}


def test_a_draft_becomes_an_append() -> None:
    draft = Draft(1, 4)
    draft.add(b"two", partition=2)
    draft.add(b"one")
    draft.write_lock("w")
    draft.read_lock("r", partition=0)
    draft.read_lock("there", partition=2)
    append = append_of(draft, REQUEST, HWMS)
    assert append.request == REQUEST and list(append.parts) == [1, 2]
    own, other = append.parts[1], append.parts[2]
    assert (own.hwm, own.write_locks, own.other_read_locks) == (6, (b"w",), {0: (5, (b"r",))})
    assert (other.hwm, other.read_locks, other.other_read_locks) == (7, (b"there",), {})
    assert [append.hwm(partition) for partition in range(4)] == [5, 6, 7, -1]


def test_an_append_without_records_of_its_own_partition() -> None:
    draft = Draft(1, 3)
    draft.add(b"two", partition=2)
    draft.read_lock("r")
    draft.read_lock(partition=0)
    assert append_of(draft, REQUEST, HWMS).parts[2].other_read_locks == {1: (6, (b"r",))}


def test_drafts_that_cannot_be_appended() -> None:
    with pytest.raises(NotAppended, match="no record"):
        append_of(Draft(0, 1), REQUEST, HWMS)
    unassigned = Draft(3, 4)
    unassigned.add(b"v")
    with pytest.raises(NotAppended, match="partition 3 is not assigned"):
        append_of(unassigned, REQUEST, HWMS)
    for kind in ("write_lock", "append_lock"):
        draft = Draft(0, 2)
        draft.add(b"v")
        getattr(draft, kind)("a", partition=1)
        with pytest.raises(NotAppended, match="only read locks"):
            append_of(draft, REQUEST, HWMS)
    draft = Draft(0, 2)
    draft.add(b"v")
    draft.expect_offset(3, partition=1)
    with pytest.raises(NotAppended, match="only read locks"):
        append_of(draft, REQUEST, HWMS)
