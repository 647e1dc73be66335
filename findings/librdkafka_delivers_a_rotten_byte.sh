#!/usr/bin/env bash
# librdkafka 2.16 (confluent-kafka 2.16.1; Apache Kafka 4.4.0): a byte that changed on the broker's disk reaches the application as data.
#
# Expected: the broker or the client verifies the CRC of the batch. Seen: the broker sends what the file holds, and librdkafka compares only
# with check.crcs=true, which is not its default, so the changed record arrives silently. With it the application gets an error, and the Java consumer,
# which compares by default, does not deliver the record.
. "$(dirname "$0")/lib.sh"

python_with confluent-kafka==2.16.1
kafka_broker 4.4.0 offsets.topic.replication.factor=1
"$PYTHON" - "$SERVER" "$WORK/data" >"$WORK/out.txt" <<'PROGRAM'
import sys
from pathlib import Path
from confluent_kafka import Consumer, Producer, TopicPartition

server, data = sys.argv[1:]
producer = Producer({"bootstrap.servers": server})
producer.produce("t", b"paid 100 EUR")
assert producer.flush(30) == 0
segment = Path(data, "t-0", "00000000000000000000.log")
with segment.open("r+b") as file:
    file.seek(segment.read_bytes().index(b"100"))
    file.write(b"9")
for check in (False, True):
    consumer = Consumer({"bootstrap.servers": server, "group.id": "g", "check.crcs": check, "log_level": 0})
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(60)
    print("check.crcs", check, message.error().name() if message.error() else message.value().decode())
    consumer.close()
PROGRAM
timeout 60 java -Xmx256m -cp "$JARS/*" org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$SERVER" --topic t --partition 0 --offset earliest \
    --max-messages 1 --timeout-ms 30000 >"$WORK/java.txt" 2>&1 || true
cat "$WORK/out.txt"
expect "the default" "$(sed -n 1p "$WORK/out.txt")" "check.crcs False paid 900 EUR"
expect "check.crcs=true" "$(sed -n 2p "$WORK/out.txt")" "check.crcs True _BAD_MSG"
expect "the Java console consumer" "$(grep -o 'paid.*\|Processed.*' "$WORK/java.txt")" "Processed a total of 0 messages"
