#!/usr/bin/env bash
# aiokafka 0.14.0 (Apache Kafka 4.4.0): after one record that the broker refuses, an idempotent producer's later sends to that partition all fail.
#
# Expected, as of the Java client: the refused batch gives its sequence number back, later sends succeed. Seen: the client counts on, the broker waits for
# the number that never came, and every later send to that partition fails with OutOfOrderSequenceNumber, while another topic goes on. Without
# enable_idempotence (the default) later sends succeed.
. "$(dirname "$0")/lib.sh"

python_with aiokafka==0.14.0
kafka_broker 4.4.0 offsets.topic.replication.factor=1
tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$SERVER" --create --topic small --config max.message.bytes=2000 >/dev/null
tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$SERVER" --create --topic other >/dev/null
"$PYTHON" - "$SERVER" >"$WORK/out.txt" 2>"$WORK/err.txt" <<'PROGRAM'
import asyncio, os, sys
from aiokafka import AIOKafkaProducer


async def main():
    for idempotent in (True, False):
        producer = AIOKafkaProducer(
            bootstrap_servers=sys.argv[1], enable_idempotence=idempotent, request_timeout_ms=10_000
        )
        await producer.start()
        said = []
        for topic, value in (("small", b"a"), ("small", os.urandom(5000)), ("small", b"b"), ("small", b"c"), ("other", b"d")):
            try:
                await asyncio.wait_for(producer.send_and_wait(topic, value), 30)
                said.append("ok")
            except Exception as error:
                said.append(type(error).__name__)
        print(*said, flush=True)
        await producer.stop()


asyncio.run(main())
PROGRAM
cat "$WORK/out.txt"
expect "idempotent: before, too large, after, after, to another topic" "$(sed -n 1p "$WORK/out.txt" | sed 's/[A-Z][A-Za-z]*/refused/g')" "ok refused refused refused ok"
expect "not idempotent" "$(sed -n 2p "$WORK/out.txt" | sed 's/[A-Z][A-Za-z]*/refused/g')" "ok refused ok ok ok"
