"""The cleaner's loop joins small log files, whether or not there is anything to clean."""

from __future__ import annotations

import pytest

from tests.broker.conftest import StartBroker
from tests.broker.maintenance.test_compaction import TINY, keyed, read
from tests.broker.wire import Client, batch


async def test_small_files_are_joined_where_nothing_is_compacted(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lockstep.compaction")
    broker = await start_broker(**TINY)
    client = await Client.connect(broker.port)
    await client.create("d", retention_ms="-1")
    group = broker.groups[1]
    for at in range(8):
        await client.produce("d", batch(b"%d" % at))
        assert await group.sealer.run(5.0)
    before = len(group.log.segments())
    assert before >= 8
    await broker.compact()
    assert "small segments were joined" in caplog.text and len(group.log.segments()) <= before - 7
    assert [record.value for record in await read(client, "d")] == [b"%d" % at for at in range(8)]
    caplog.clear()
    await broker.compact()
    assert "joined" not in caplog.text
    await client.close()


async def test_small_files_are_joined_beside_a_segment_that_nobody_can_mend(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker(**TINY)
    client = await Client.connect(broker.port)
    await client.create("c", cleanup_policy="compact", min_cleanable_dirty_ratio="0.0")
    await client.create("d", retention_ms="-1")
    group = broker.groups[1]
    for turn in range(12):
        await client.produce("c", keyed([(b"k%d" % (turn % 3), b"v" * 500)]))
        await client.produce("d", batch(b"x" * 1000))
        assert await group.sealer.run(5.0)
    first = group.log._table.sealed()[0]
    data = bytearray(first.path.read_bytes())
    data[data.index(b"v" * 100)] ^= 1
    first.path.write_bytes(data)
    for _ in range(3):
        await broker.compact()
        await group.scrub(first.sequence, lambda _: None)
    assert "compaction is delayed" in caplog.text and group.log.damage.is_damaged(first.sequence)
    assert group.log.has_segment(first.sequence) and len(group.log.segments()) < 5
    assert not group.log.has_small_neighbours()
    await client.close()
