#!/usr/bin/env bash
# Apache Kafka 4.4.0, one node with the default share.coordinator.state.topic.replication.factor (3): a share consumer gets nothing and no error.
#
# Expected: an error at the join, as for consumer groups' offsets topic. Seen: the console share consumer joins, runs until its time is over and prints no
# record of three that are there, without an error; the group is described as Stable. Only the broker's log tells that the state topic cannot be created.
# With the factor set to 1 the same consumer prints all three.
. "$(dirname "$0")/lib.sh"

run() { # FACTOR: how many records a share consumer prints, and the group's state
    kafka_broker 4.4.0 offsets.topic.replication.factor=1 transaction.state.log.replication.factor=1 \
        transaction.state.log.min.isr=1 group.share.heartbeat.interval.ms=5000 "$@"
    tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$SERVER" --create --topic t >/dev/null
    tool org.apache.kafka.tools.ConfigCommand --bootstrap-server "$SERVER" --alter --entity-type groups --entity-name g \
        --add-config share.auto.offset.reset=earliest >/dev/null
    printf 'one\ntwo\nthree\n' | tool org.apache.kafka.tools.ConsoleProducer --bootstrap-server "$SERVER" --topic t >/dev/null
    timeout 30 java -Xmx256m -cp "$JARS/*" org.apache.kafka.tools.consumer.ConsoleShareConsumer --bootstrap-server "$SERVER" --topic t --group g \
        >"$WORK/consumed.txt" 2>"$WORK/consumer.err" &
    local consumer=$!
    sleep 22
    tool org.apache.kafka.tools.consumer.group.ShareGroupCommand --bootstrap-server "$SERVER" --describe --group g --state >"$WORK/state.txt" 2>&1 || true
    wait "$consumer" || true
    kill "${PIDS[-1]}"
    wait "${PIDS[-1]}" 2>/dev/null || true
    rm -rf "$WORK/data"
}

run
cat "$WORK/consumed.txt" "$WORK/consumer.err" "$WORK/state.txt"
expect "records with the default factor" "$(wc -l <"$WORK/consumed.txt" | tr -d ' ')" 0
expect "errors said to the consumer" "$(grep -ciE 'error|exception' "$WORK/consumer.err" || true)" 0
expect "the group is Stable" "$(grep -c Stable "$WORK/state.txt")" 1
run share.coordinator.state.topic.replication.factor=1 share.coordinator.state.topic.min.isr=1
cat "$WORK/consumed.txt"
expect "records with factor 1" "$(wc -l <"$WORK/consumed.txt" | tr -d ' ')" 3
