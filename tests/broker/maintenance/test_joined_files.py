"""The cleaner's loop joins small log files, whether or not there is anything to clean."""

from __future__ import annotations

import pytest

from tests.broker.conftest import StartBroker
from tests.broker.maintenance.test_compaction import TINY, read
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
