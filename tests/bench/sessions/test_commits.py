"""Group commits, counted in a stopped node's logs."""

from __future__ import annotations

from bench.load.backlog import fill
from bench.load.wire import record_batch
from bench.sessions.commits import commits_by_topic
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection
from compat_tests.targets import LockstepTarget


def test_group_commits_are_counted_per_topic() -> None:
    with LockstepTarget() as broker:
        for topic in ("one", "other"):
            with RawConnection(HOST, broker.port) as connection:
                connection.create_topic(topic)
        ports = {"host": HOST, "port": broker.port, "record_bytes": 16, "records": 1, "window": 1}
        size = len(record_batch(1, 16, 0))
        fill({**ports, "topic": "one", "total_bytes": 5 * size})
        fill({**ports, "topic": "other", "total_bytes": 3 * size})
        broker.stop()
        counted = commits_by_topic(broker.data_dir)
    assert (counted["one"], counted["other"], counted["none"]) == (5, 3, 0)
