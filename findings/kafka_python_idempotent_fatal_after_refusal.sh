#!/usr/bin/env bash
# kafka-python 3.0.12 (Apache Kafka 4.4.0): one record that the broker refuses ends an idempotent producer, which is the default, for good.
#
# Expected, as of the Java client: that record's future fails, later sends succeed. Seen: a record above the topic's max.message.bytes (and below the
# client's max_request_size) is refused with RecordTooLarge, and each later send() of any record to any topic raises as well, until the
# application makes another producer. With enable_idempotence=False the later sends succeed.
. "$(dirname "$0")/lib.sh"

python_with kafka-python==3.0.12
kafka_broker 4.4.0 offsets.topic.replication.factor=1
tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$SERVER" --create --topic small --config max.message.bytes=2000 >/dev/null
tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$SERVER" --create --topic other >/dev/null
"$PYTHON" - "$SERVER" >"$WORK/out.txt" 2>"$WORK/err.txt" <<'PROGRAM'
import os, sys
from kafka import KafkaProducer

for idempotent in (None, False):
    settings = {} if idempotent is None else {"enable_idempotence": idempotent}
    producer = KafkaProducer(bootstrap_servers=sys.argv[1], **settings)
    said = []
    for topic, value in (("small", b"a"), ("small", os.urandom(5000)), ("small", b"b"), ("other", b"c")):
        try:
            producer.send(topic, value).get(20)
            said.append("ok")
        except Exception as error:
            said.append(type(error).__name__)
    print(*said)
PROGRAM
cat "$WORK/out.txt"
expect "default: before, too large, after, after to another topic" "$(sed -n 1p "$WORK/out.txt" | sed 's/[A-Z][A-Za-z]*/refused/g')" "ok refused refused refused"
expect "enable_idempotence=False" "$(sed -n 2p "$WORK/out.txt" | sed 's/[A-Z][A-Za-z]*/refused/g')" "ok refused ok ok"
