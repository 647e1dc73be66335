"""From parts to the records that an application is given."""

from __future__ import annotations

import pytest

from lockstep.player.core.messages import Part
from lockstep.player.target.records import Delivered, LogName, open_parts, records_of
from lockstep.protocol.records.batch import CorruptBatch, MalformedBatch
from lockstep.protocol.records.compression import Codec
from tests.player.target.streams import payload, value
from tests.support.cases import each_case


@each_case("codec", Codec)
def test_the_records_of_a_part(codec: Codec) -> None:
    for made in (payload(7, 3, codec=codec), memoryview(payload(7, 3, codec=codec))):
        records = records_of(made)
        assert [record.offset for record in records] == [7, 8, 9]
        assert [record.timestamp for record in records] == [1007, 1008, 1009]
        assert [record.key for record in records] == [b"key 1", b"key 2", b"key 0"]
        assert [record.value for record in records] == [value(7), value(8), value(9)]
        assert records[0].headers == [("at", b"7")]


def test_what_is_not_one_whole_batch_is_refused() -> None:
    whole = payload(7, 3)
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    for wrong in (b"", whole[:-1], whole[:40], b"\0" * len(whole)):
        with pytest.raises(MalformedBatch):
            records_of(wrong)
    with pytest.raises(CorruptBatch):
        records_of(flipped)
    with pytest.raises(MalformedBatch, match="after the record batch"):
        records_of(whole + whole)
    with pytest.raises(MalformedBatch, match="holds markers"):
        records_of(payload(7, control=True))
    with pytest.raises(MalformedBatch, match="not str"):
        records_of("text")


def test_what_is_delivered_together() -> None:
    name = LogName("cluster/id/3", "orders", 3)
    entries = open_parts([Part(9, payload(7, 3), 1), Part(12, payload(12), 1)], 3)
    assert [entry.partition for entry in entries] == [3, 3]
    assert [entry.position for entry in entries] == [9, 12]
    together = Delivered(name, 6, 20, entries)
    assert [record.offset for record in together.records] == [7, 8, 9, 12]
    assert (together.log_id, together.topic, together.partition) == ("cluster/id/3", "orders", 3)
    assert repr(together) == "Delivered(orders-3, 4 records, after 6 to 20)"
    assert Delivered(name, 6, 9, entries[:1]).records is entries[0].records
    assert Delivered(name, 6, 9, []).records == []


def test_entries_of_several_partitions_have_theirs() -> None:
    entries = open_parts([Part(9, payload(7, 3), 1, 2), Part(12, payload(7), 1, 0)], -1)
    assert [(entry.partition, [each.offset for each in entry.records]) for entry in entries] == [
        (2, [7, 8, 9]),
        (0, [7]),
    ]
