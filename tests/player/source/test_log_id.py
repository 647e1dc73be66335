"""The text that a mark carries."""

from __future__ import annotations

from lockstep.player.source.log_id import group_log_id, log_id


def test_as_kafkas_tools_show_a_topic_id() -> None:
    topic_id = bytes.fromhex("fbff" + "00" * 13 + "01")
    assert log_id("cluster", topic_id, 3) == "cluster/-_8AAAAAAAAAAAAAAAAAAQ/3"
    assert group_log_id("cluster", topic_id, 3) == "cluster/-_8AAAAAAAAAAAAAAAAAAQ/log-group-3"
