#!/usr/bin/env bash
# Apache Kafka 4.3.1: MirrorMaker's source connector in an ordinary Connect worker changes the bytes of headers.
#
# Expected of a mirror whose key.converter and value.converter are the ByteArrayConverter: records arrive byte for byte. Seen: the worker's default
# header.converter (SimpleHeaderConverter) writes bytes as base64, so the header 00 ff arrives as the text "AP8=", without a warning.
# header.converter=org.apache.kafka.connect.converters.ByteArrayConverter keeps them; the dedicated MirrorMaker sets that by itself.
. "$(dirname "$0")/lib.sh"

python_with confluent-kafka==2.16.1
kafka_jars 4.3.1 org.apache.kafka:connect-runtime:4.3.1 org.apache.kafka:connect-mirror:4.3.1
kafka_broker 4.3.1 offsets.topic.replication.factor=1
"$PYTHON" - "$SERVER" <<'PROGRAM'
import sys
from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("t", b"value", headers=[("h", b"\x00\xff")])
assert producer.flush(30) == 0
PROGRAM
connect_worker
bytes=org.apache.kafka.connect.converters.ByteArrayConverter
mirror() {  # mirror ALIAS SETTING...: copies the topic t of the cluster to ALIAS.t of the same cluster
    connector "$1" connector.class=org.apache.kafka.connect.mirror.MirrorSourceConnector "source.cluster.alias=$1" target.cluster.alias=there \
        "source.cluster.bootstrap.servers=$SERVER" "target.cluster.bootstrap.servers=$SERVER" topics=t replication.factor=1 \
        offset-syncs.topic.replication.factor=1 sync.topic.acls.enabled=false "key.converter=$bytes" "value.converter=$bytes" "${@:2}" |
        cut -d' ' -f1
}
mirror plain
mirror byte_array "header.converter=$bytes"
"$PYTHON" - "$SERVER" >"$WORK/out.txt" <<'PROGRAM'
import sys
from confluent_kafka import Consumer, TopicPartition

for topic in ("plain.t", "byte_array.t"):
    consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "topic.metadata.refresh.interval.ms": 1000, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = None
    for _ in range(120):
        message = consumer.poll(1)
        if message is not None and not message.error():
            break
    print(topic, message.value().decode(), message.headers())
    consumer.close()
PROGRAM
cat "$WORK/out.txt"
expect "the worker's default" "$(sed -n 1p "$WORK/out.txt")" "plain.t value [('h', b'AP8=')]"
expect "ByteArrayConverter for headers" "$(sed -n 2p "$WORK/out.txt")" "byte_array.t value [('h', b'\\x00\\xff')]"
