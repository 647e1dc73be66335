import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consumers that subscribed within a group. They join and rebalance in `poll`, and heartbeat in the background. */
final class Members {
    private static final String PACKAGE = "org.apache.kafka.clients.consumer.";
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", PACKAGE + "RangeAssignor",
        "roundrobin", PACKAGE + "RoundRobinAssignor",
        "cooperative-sticky", PACKAGE + "CooperativeStickyAssignor");
    private static final Duration SLICE = Duration.ofMillis(50);
    private static final Duration LEAVING = Duration.ofSeconds(5);

    private final Map<Integer, KafkaConsumer<byte[], byte[]>> members = new HashMap<>();
    private final Map<Integer, Boolean> driven = new HashMap<>();
    private int last = 0;

    JsonNode join(JsonNode ask) {
        Properties settings = Wire.settings(ask);
        settings.computeIfPresent("partition.assignment.strategy", (key, name) -> ASSIGNORS.get(name));
        // one at a time: the position, which commits take, is then behind the last record that was asked for
        settings.put("max.poll.records", "1");
        settings.putIfAbsent("allow.auto.create.topics", "false");
        settings.putIfAbsent("default.api.timeout.ms", "15000");
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        int number = ++last;
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> revoked) {}

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                if (driven.get(number)) {
                    consumer.pause(assigned);
                }
            }
        };
        List<String> topics = Wire.texts(ask.get("topics"));
        boolean isPattern = topics.get(0).startsWith("^");
        if (isPattern && "consumer".equals(settings.getProperty("group.protocol"))) {
            subscribe(consumer, topics.get(0), listener);
        } else if (isPattern) {
            consumer.subscribe(Pattern.compile(topics.get(0)), listener);
        } else {
            consumer.subscribe(topics, listener);
        }
        members.put(number, consumer);
        driven.put(number, false);
        return Wire.number(number);
    }

    /** A pattern for the broker; its class is younger than the oldest version here. */
    private static void subscribe(KafkaConsumer<?, ?> consumer, String text, ConsumerRebalanceListener listener) {
        try {
            Class<?> kind = Class.forName(PACKAGE + "SubscriptionPattern");
            Object pattern = kind.getConstructor(String.class).newInstance(text);
            consumer.getClass().getMethod("subscribe", kind, ConsumerRebalanceListener.class)
                .invoke(consumer, pattern, listener);
        } catch (ReflectiveOperationException missing) {
            throw new IllegalStateException(missing);
        }
    }

    private KafkaConsumer<byte[], byte[]> member(JsonNode ask) {
        return members.get(ask.get("member").asInt());
    }

    JsonNode poll(JsonNode ask) {
        int count = ask.get("count").asInt();
        long until = System.nanoTime() + (long) (ask.get("timeout_s").asDouble() * 1e9);
        if (count == 0) {
            drive(ask.get("member").asInt(), until);
        }
        ArrayNode found = Wire.JSON.createArrayNode();
        while (found.size() < count && System.nanoTime() < until) {
            for (ConsumerRecord<byte[], byte[]> record : member(ask).poll(SLICE)) {
                found.add(Wire.stored(record));
            }
        }
        return found;
    }

    /** Polls with every partition paused, so that no record comes out of it. */
    private void drive(int number, long until) {
        KafkaConsumer<byte[], byte[]> consumer = members.get(number);
        Set<TopicPartition> before = consumer.assignment();
        driven.put(number, true);
        consumer.pause(before);
        try {
            do {
                consumer.poll(SLICE);
            } while (consumer.assignment().equals(before) && System.nanoTime() < until);
        } finally {
            driven.put(number, false);
            consumer.resume(consumer.paused());
        }
    }

    JsonNode assignment(JsonNode ask) {
        return Wire.partitions(member(ask).assignment());
    }

    JsonNode commit(JsonNode ask) {
        member(ask).commitSync();
        return Wire.JSON.nullNode();
    }

    JsonNode leave(JsonNode ask) {
        int number = ask.get("member").asInt();
        driven.remove(number);
        close(members.remove(number), LEAVING);
        return Wire.JSON.nullNode();
    }

    @SuppressWarnings("deprecation")  // its successor, CloseOptions, is younger than the oldest version here
    private static void close(KafkaConsumer<byte[], byte[]> consumer, Duration timeout) {
        consumer.close(timeout);
    }

    void close() {
        members.values().forEach(each -> close(each, Duration.ZERO));
    }
}
