#!/usr/bin/env bash
# Apache Kafka 4.4.0: a Connect worker does not load connect-file 4.3.1, and its REST API answers with 500 and an empty body.
#
# Expected of a minor release: connectors that were built for the one before it load. Seen: org.apache.kafka.common.utils.AppInfoParser, with whose version
# the file connectors (and others that follow their example) answer version(), is gone from kafka-clients 4.4.0. The worker's log has the NoClassDefFoundError;
# the caller of the REST API sees nothing. On a worker of 4.3.1 the same connector is made.
. "$(dirname "$0")/lib.sh"

kafka_jars 4.4.0 org.apache.kafka:connect-runtime:4.4.0 org.apache.kafka:connect-file:4.3.1
kafka_broker 4.4.0 offsets.topic.replication.factor=1
printf 'a line\n' >"$WORK/lines.txt"
for version in 4.3.1 4.4.0; do
    [ "$version" = 4.4.0 ] || kafka_jars 4.3.1 org.apache.kafka:connect-runtime:4.3.1 org.apache.kafka:connect-file:4.3.1
    JARS="$WORK/jars-$version"
    connect_worker
    connector lines connector.class=org.apache.kafka.connect.file.FileStreamSourceConnector "file=$WORK/lines.txt" topic=lines >"$WORK/$version.txt"
    echo "worker of $version: $(cat "$WORK/$version.txt")"
done
expect "worker of 4.3.1: status" "$(cut -d' ' -f1 "$WORK/4.3.1.txt")" 201
expect "worker of 4.4.0: status and body" "$(cat "$WORK/4.4.0.txt")" "500 "
expect "what its log names" "$(grep -om1 'NoClassDefFoundError: org/apache/kafka/common/utils/AppInfoParser' "$WORK/connect.log")" \
    "NoClassDefFoundError: org/apache/kafka/common/utils/AppInfoParser"
