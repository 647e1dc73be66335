"""Where batches that were read end. What was aborted in them: `api/test_read_committed.py`."""

from __future__ import annotations

from lockstep.broker.fetch.aborted_transactions import offset_after
from tests.broker.appends import batch


def test_the_end_of_several_batches_is_that_of_the_last() -> None:
    first, second = batch(b"a", b"b"), bytearray(batch(b"c", b"d", b"e"))
    second[:8] = (40).to_bytes(8, "big")
    for joined in (bytes(first + second), memoryview(first + second)):
        assert offset_after(joined) == 43
    assert offset_after(first) == 2
