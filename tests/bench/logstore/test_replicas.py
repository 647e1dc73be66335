"""What replicas wrote, as told of one of them."""

from __future__ import annotations

from bench.logstore.replicas import written_between


def test_what_one_replica_wrote_is_told_per_payload_byte_and_commit() -> None:
    before = {"commit_index": 5, "flushes": 9, "lost": 0, "written": {"log": 100, "index": 0}}
    after = {"commit_index": 15, "flushes": 19, "lost": 2, "written": {"log": 1200, "index": 10}}
    told = written_between(before, after, 1000)
    assert told["flushes_per_commit"] == 1.0
    assert told["bytes_per_payload_byte"] == {"log": 1.1, "index": 0.01}
    assert told["lost"] == 2
