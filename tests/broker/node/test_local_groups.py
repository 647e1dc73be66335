"""What a node's log names of a group that was opened without its state file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS_TOPIC_ID
from lockstep.broker.metadata.metadata_image import MetadataImage, TopicEntry, TopicState
from lockstep.broker.node.local_groups import MAX_LOGGED_PARTITIONS, _log_missing_records
from lockstep.broker.settings.config import Settings
from lockstep.storage.log_group import LogGroup
from lockstep.storage.missing_records import MissingRecords

DELETED, COMPACTED, DEFAULT, UNKNOWN = (bytes([number]) * 16 for number in (1, 2, 3, 4))


def logged(
    caplog: pytest.LogCaptureFixture, missing: list[MissingRecords], settings: Settings | None = None
) -> str:
    image = MetadataImage()
    for name, topic_id, overrides in (
        ("parcels", DELETED, {"cleanup.policy": "delete"}),
        ("stocks", COMPACTED, {"cleanup.policy": "compact,delete"}),
        ("plain", DEFAULT, {}),
    ):
        image.topics[topic_id] = TopicEntry(name, topic_id, [1], dict(overrides), TopicState.READY)
    first = SimpleNamespace(first_index=13, sequence=7)
    group = SimpleNamespace(
        group_id=1, missing_records=missing, log=SimpleNamespace(segments=lambda: [first])
    )
    _log_missing_records(cast(LogGroup, group), image, settings or Settings())
    text = "\n".join(record.getMessage() for record in caplog.records)
    caplog.clear()
    return text


def test_missing_records_are_named_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    found = [MissingRecords(DELETED, 2, 5, 40), MissingRecords(DEFAULT, 0, 0, 9)]
    assert logged(caplog, found) == (
        "log group 1: its state file is damaged, and its log begins with frame 13 in segment 7: earlier "
        "segments are missing with records that were not deleted: parcels-2: offsets 5 to 39, plain-0: "
        "offsets 0 to 8; put it back from a copy, or start a node of a cluster with the same number and an "
        "empty directory"
    )


def test_what_compaction_may_have_removed_is_no_certain_loss(caplog: pytest.LogCaptureFixture) -> None:
    found = [MissingRecords(COMPACTED, 0, 0, 9), MissingRecords(UNKNOWN, 1, 0, 4)]
    text = logged(caplog, found)
    assert "none for certain; and these, unless compaction removed them: stocks-0: offsets 0 to 8, " in text
    assert f"topic {UNKNOWN.hex()}-1: offsets 0 to 3" in text
    compacting = Settings(log_cleanup_policy=("compact",))
    assert "none for certain" in logged(caplog, [MissingRecords(DEFAULT, 0, 0, 9)], compacting)


def test_nothing_is_logged_of_internal_topics_or_without_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, []) == logged(caplog, [MissingRecords(CONSUMER_OFFSETS_TOPIC_ID, 0, 0, 9)]) == ""


def test_a_line_names_so_many_partitions_at_most(caplog: pytest.LogCaptureFixture) -> None:
    found = [MissingRecords(DELETED, number, 0, 9) for number in range(MAX_LOGGED_PARTITIONS + 3)]
    text = logged(caplog, found)
    assert text.count("offsets 0 to 8") == MAX_LOGGED_PARTITIONS and " and 3 more partitions" in text
