#!/usr/bin/env bash
# Apache Kafka 4.4.0: the new topic setting max.decompressed.message.bytes limits records of compressed batches only.
#
# Expected of a limit on the size of a message: a record is refused above it, however it is sent. Seen: with 1000, a record of 1,100 bytes in a gzip or zstd
# batch is refused as invalid, and a record of 5,000 bytes in an uncompressed batch is stored.
. "$(dirname "$0")/lib.sh"

python_with confluent-kafka==2.16.1
kafka_broker 4.4.0 offsets.topic.replication.factor=1
tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$SERVER" --create --topic limited --config max.decompressed.message.bytes=1000 >/dev/null
"$PYTHON" - "$SERVER" >"$WORK/out.txt" <<'PROGRAM'
import sys
from confluent_kafka import Producer

for codec, size in (("gzip", 1100), ("zstd", 1100), ("gzip", 500), ("none", 5000)):
    producer, said = Producer({"bootstrap.servers": sys.argv[1], "compression.type": codec, "log_level": 0}), []
    producer.produce("limited", b"v" * size, on_delivery=lambda error, _: said.append(error.name() if error else "stored"))
    producer.flush(20)
    print(codec, size, *said)
PROGRAM
cat "$WORK/out.txt"
expect "gzip, 1,100 bytes" "$(sed -n 1p "$WORK/out.txt" | cut -d' ' -f3)" INVALID_RECORD
expect "zstd, 1,100 bytes" "$(sed -n 2p "$WORK/out.txt" | cut -d' ' -f3)" INVALID_RECORD
expect "gzip, 500 bytes" "$(sed -n 3p "$WORK/out.txt" | cut -d' ' -f3)" stored
expect "uncompressed, 5,000 bytes" "$(sed -n 4p "$WORK/out.txt" | cut -d' ' -f3)" stored
