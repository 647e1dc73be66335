"""Test doubles for applications: a broker, or a log in memory.

    async with lockstep.testing.broker() as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)

It is the real broker on the running event loop, with a real log on disk: small files in a temporary
directory that is removed at the end, a free port of this machine. Clients that block (kafka-python,
confluent-kafka) must run in a thread, or `broker_in_thread` must be used, which needs no event loop at all.

Settings are the broker's, with underscores: `broker(message_max_bytes=2000, num_partitions=3)`. Durability is
as configured: `log_flush="os"` is faster where a test kills nothing.

`lockstep.testing.memory_log` is no broker but the log that transactions see, with faults on request.
"""

from lockstep.testing.in_process_broker import RunningBroker, broker, broker_in_thread

__all__ = ["RunningBroker", "broker", "broker_in_thread"]
