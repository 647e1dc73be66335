#!/usr/bin/env bash
# Apache Kafka 4.4.0 (broker and Java client): a pattern that the broker evaluates (KIP-848) takes internal topics, one that the client evaluates does not.
#
# Expected: the same topics for ".*", as exclude.internal.topics is true by default. Seen: a classic consumer with Pattern ".*" is assigned the application's topic
# alone; a consumer of the new protocol with SubscriptionPattern ".*" is assigned the 50 partitions of __consumer_offsets as well, and is given the group
# coordinator's binary records.
. "$(dirname "$0")/lib.sh"

kafka_broker 4.4.0 offsets.topic.replication.factor=1
tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$SERVER" --create --topic orders >/dev/null
cat >"$WORK/Patterns.java" <<'PROGRAM'
import java.time.Duration;
import java.util.*;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Patterns {
    static KafkaConsumer<byte[], byte[]> consumer(String server, String group, String protocol) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", server);
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static TreeSet<String> topics(KafkaConsumer<byte[], byte[]> consumer, int seconds, int wanted) {
        TreeSet<String> found = new TreeSet<>();
        long end = System.currentTimeMillis() + seconds * 1000L;
        while (System.currentTimeMillis() < end && found.size() < wanted) {
            consumer.poll(Duration.ofMillis(200));
            for (TopicPartition each : consumer.assignment()) found.add(each.topic());
        }
        return found;
    }

    public static void main(String[] arguments) {
        try (var first = consumer(arguments[0], "first", "classic")) {  // makes __consumer_offsets
            first.subscribe(List.of("orders"));
            topics(first, 60, 1);
        }
        try (var classic = consumer(arguments[0], "a", "classic")) {
            classic.subscribe(Pattern.compile(".*"));
            topics(classic, 60, 1);
            System.out.println("classic " + topics(classic, 5, 2));
        }
        try (var newer = consumer(arguments[0], "b", "consumer")) {
            newer.subscribe(new SubscriptionPattern(".*"));
            System.out.println("consumer " + topics(newer, 60, 2));
        }
    }
}
PROGRAM
java -Xmx256m -cp "$JARS/*" "$WORK/Patterns.java" "$SERVER" >"$WORK/out.txt" 2>"$WORK/err.txt" || tail -3 "$WORK/err.txt"
cat "$WORK/out.txt"
expect "evaluated by the client" "$(sed -n 1p "$WORK/out.txt")" "classic [orders]"
expect "evaluated by the broker" "$(sed -n 2p "$WORK/out.txt")" "consumer [__consumer_offsets, orders]"
