#!/usr/bin/env bash
# Apache Kafka 4.4.0: kafka-configs stores a misspelt setting of brokers and ends with 0; the same mistake in a topic's setting is refused.
#
# Expected: a refusal as for topics ("Unknown topic config name"). Seen: "log.retention.mss" for all brokers is stored, and described afterwards as a sensitive
# setting without a value, so not even the typing error's value is seen; retention does not change. Whoever alters brokers by script has to compare
# names with a list of their own.
. "$(dirname "$0")/lib.sh"

kafka_broker 4.4.0 offsets.topic.replication.factor=1
tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$SERVER" --create --topic t >/dev/null
configs() { tool org.apache.kafka.tools.ConfigCommand --bootstrap-server "$SERVER" "$@"; }
status=0
configs --alter --entity-type brokers --entity-default --add-config log.retention.mss=60000 >"$WORK/alter.txt" 2>&1 || status=$?
cat "$WORK/alter.txt"
configs --describe --entity-type brokers --entity-default >"$WORK/describe.txt"
cat "$WORK/describe.txt"
expect "exit status for brokers" "$status" 0
expect "lines that show it as sensitive" "$(grep -c 'log.retention.mss=null sensitive=true' "$WORK/describe.txt")" 1
status=0
configs --alter --entity-type topics --entity-name t --add-config retention.mss=60000 >"$WORK/topic.txt" 2>&1 || status=$?
expect "exit status for a topic" "$status" 1
expect "refused by name" "$(grep -o 'Unknown topic config name: retention.mss' "$WORK/topic.txt" | sort -u)" "Unknown topic config name: retention.mss"
