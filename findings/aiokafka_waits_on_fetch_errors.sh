#!/usr/bin/env bash
# aiokafka 0.14.0 (Apache Kafka 4.4.0): a partition that the broker cannot read is a line in the log; the application waits.
#
# Expected, as of librdkafka: getone() raises when the broker answers a fetch with CORRUPT_MESSAGE. Seen: aiokafka
# logs a warning and sends the same fetch again, without end; getone() does not return. A relay before the broker writes the error into the answers to Fetch.
. "$(dirname "$0")/lib.sh"

python_with aiokafka==0.14.0 confluent-kafka==2.16.1
RELAY=$(free_port)
kafka_broker 4.4.0 offsets.topic.replication.factor=1 "advertised.listeners=PLAINTEXT://127.0.0.1:$RELAY"
cat >"$WORK/relay.py" <<'PROGRAM'
import asyncio, struct, sys

FETCH, CORRUPT_MESSAGE = 1, 2
port, broker = int(sys.argv[1]), int(sys.argv[2])


async def frame(reader):
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return bytearray(await reader.readexactly(size))


def with_error(body, version):
    """A fetch's answer about one partition: after throttle time, error and session come the topic's name or id, then the index and the error."""
    at = 4 + (version >= 12) + 4 + 2 + 4
    if version >= 12:
        topics, at = body[at] - 1, at + 1
        at += 16 if version >= 13 else body[at]
        at += 1 + 4
    else:
        (topics,) = struct.unpack_from(">i", body, at)
        at += 4
        if topics:
            (length,) = struct.unpack_from(">h", body, at)
            at += 2 + length + 4 + 4
    if topics > 0:
        struct.pack_into(">h", body, at, CORRUPT_MESSAGE)
    return body


async def serve(reader, writer):
    from_broker, to_broker = await asyncio.open_connection("127.0.0.1", broker)
    asked = []

    async def requests():
        while True:
            body = await frame(reader)
            asked.append(struct.unpack_from(">hh", body))
            to_broker.write(struct.pack(">i", len(body)) + body)

    async def answers():
        while True:
            body = await frame(from_broker)
            key, version = asked.pop(0)
            if key == FETCH:
                assert version >= 7
                body = with_error(body, version)
            writer.write(struct.pack(">i", len(body)) + body)

    try:
        await asyncio.gather(requests(), answers())
    except (asyncio.IncompleteReadError, ConnectionError):
        to_broker.close()
        writer.close()


async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
        await server.serve_forever()


asyncio.run(main())
PROGRAM
"$PYTHON" "$WORK/relay.py" "$RELAY" "${SERVER#*:}" 2>"$WORK/relay.err" &
PIDS+=($!)
wait_for_port "$RELAY" "the relay"
"$PYTHON" - "127.0.0.1:$RELAY" >"$WORK/out.txt" 2>"$WORK/err.txt" <<'PROGRAM' || { tail -3 "$WORK/err.txt" "$WORK/relay.err"; exit 2; }
import asyncio, logging, sys
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

server, warnings = sys.argv[1], []
handler = logging.Handler()
handler.emit = lambda record: warnings.append(record.getMessage())
logging.getLogger("aiokafka").addHandler(handler)

producer = Producer({"bootstrap.servers": server})
producer.produce("t", b"value")
assert producer.flush(30) == 0
consumer = Consumer({"bootstrap.servers": server, "group.id": "g", "log_level": 0})
consumer.assign([Place("t", 0, 0)])
message = consumer.poll(60)
print("librdkafka", message.error().name() if message.error() else "a record")
consumer.close()


async def main():
    consumer = AIOKafkaConsumer(bootstrap_servers=server)
    await consumer.start()
    consumer.assign([TopicPartition("t", 0)])
    consumer.seek(TopicPartition("t", 0), 0)
    try:
        await asyncio.wait_for(consumer.getone(), 15)
        said = "a record"
    except Exception as error:
        said = type(error).__name__
    print("aiokafka", said)
    print("warnings", len(warnings) > 1, *set(warnings))
    await consumer.stop()


asyncio.run(main())
PROGRAM
cat "$WORK/out.txt"
expect "librdkafka's consumer" "$(sed -n 1p "$WORK/out.txt")" "librdkafka INVALID_MSG"
expect "aiokafka's consumer, after 15 s" "$(sed -n 2p "$WORK/out.txt")" "aiokafka TimeoutError"
expect "aiokafka's log, again and again" "$(sed -n 3p "$WORK/out.txt")" "warnings True Unexpected error while fetching data: CorruptRecordException"
