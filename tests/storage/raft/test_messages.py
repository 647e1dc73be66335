"""Messages are plain values: equal by content, no room for stray attributes."""

import pytest

from lockstep.storage.raft import messages


def test_equal_by_kind_and_content() -> None:
    assert messages.TimeoutNow(1, 2, 3) == messages.TimeoutNow(1, 2, 3)
    assert messages.TimeoutNow(1, 2, 3) != messages.Message(1, 2, 3)
    assert messages.Heartbeat(1, 2, 3, 7, 50) != messages.Heartbeat(1, 2, 3, 8, 50)
    append = messages.Append(1, 2, 3, 7, 2, ((8, 3),), 8, (), 7, 50)
    assert (append.frames, append.sizes) == ((), ())
    assert repr(messages.VoteRequest(1, 2, 3, True, 9, 2)) == (
        "VoteRequest(sender=1, to=2, term=3, pre=True, last_index=9, last_term=2, transfer=False)"
    )


def test_slotted() -> None:
    message = messages.Install(1, 2, 3, 100, 2, 0, True, 50)
    with pytest.raises(AttributeError):
        message.other = 1  # type: ignore[attr-defined]
