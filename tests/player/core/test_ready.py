"""What a step has for a stream that the same step closes is taken back."""

from lockstep.player.core.messages import Batch, dummy
from lockstep.player.core.ready import PlayerReady, RangeRead


def test_closing_takes_back_what_was_for_that_stream_only() -> None:
    ready = PlayerReady()
    batch = Batch(1, (dummy(2),), 0)
    ready.batches = [("a", 1, batch), ("a", 2, batch), ("b", 1, batch)]
    ready.heartbeats = [("a", 1), ("b", 1)]
    ready.fetches = [RangeRead("a", 1, 3, 4, 100), RangeRead("b", 1, 3, 4, 100)]
    ready.close("a", 1, "it hangs")
    assert ready.closes == [("a", 1, "it hangs")]
    assert ready.batches == [("a", 2, batch), ("b", 1, batch)]
    assert ready.heartbeats == [("b", 1)]
    assert [each.target for each in ready.fetches] == ["b"]
