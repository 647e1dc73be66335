"""What an application may say, and what is refused before anything is sent."""

from __future__ import annotations

import pytest

from lockstep.transactions import Draft, RequestId, lock


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


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 1025, b"\n"])
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


@pytest.mark.parametrize(
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
