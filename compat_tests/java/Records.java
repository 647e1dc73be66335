import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producers, and consumers that assign their partitions by hand. */
final class Records {
    private static final long WAIT_S = 30;

    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<Integer, KafkaConsumer<byte[], byte[]>> tails = new HashMap<>();
    private int lastTail = 0;

    JsonNode produce(JsonNode ask) throws Exception {
        Properties settings = producerSettings(ask);
        return written(producers.computeIfAbsent(settings.toString(), any -> producer(settings)), ask);
    }

    private static Properties producerSettings(JsonNode ask) {
        Properties settings = Wire.settings(ask);
        settings.putIfAbsent("delivery.timeout.ms", "20000");
        settings.putIfAbsent("request.timeout.ms", "10000");
        return settings;
    }

    private static KafkaProducer<byte[], byte[]> producer(Properties settings) {
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** A new producer; each round is sent without waiting, then waited for. What became of each message. */
    JsonNode sendEach(JsonNode ask) throws Exception {
        ArrayNode rounds = Wire.JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer = producer(producerSettings(ask))) {
            for (JsonNode messages : ask.get("rounds")) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (JsonNode each : messages) {
                    sent.add(producer.send(record(ask, each)));
                }
                ArrayNode told = rounds.addArray();
                for (Future<RecordMetadata> each : sent) {
                    told.add(told(each));
                }
            }
        }
        return rounds;
    }

    private static ObjectNode told(Future<RecordMetadata> sent) throws Exception {
        ObjectNode told = Wire.JSON.createObjectNode();
        try {
            return told.put("offset", sent.get(WAIT_S, TimeUnit.SECONDS).offset());
        } catch (ExecutionException failed) {
            Throwable cause = failed.getCause();
            String name = cause.getClass().getSimpleName();
            return told.put("code", Driver.code(cause)).put("name", name).put("text", cause.getMessage());
        }
    }

    private static ProducerRecord<byte[], byte[]> record(JsonNode ask, JsonNode each) {
        Long timestamp = each.get("timestamp_ms").isNull() ? null : each.get("timestamp_ms").asLong();
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
            ask.get("topic").asText(), each.get("partition").asInt(), timestamp,
            Wire.bytes(each.get("key")), Wire.bytes(each.get("value")));
        for (JsonNode header : each.get("headers")) {
            record.headers().add(header.get(0).asText(), Wire.bytes(header.get(1)));
        }
        return record;
    }

    /** Sends what is asked and waits for all; the offsets. */
    static ArrayNode written(KafkaProducer<byte[], byte[]> producer, JsonNode ask) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode each : ask.get("messages")) {
            sent.add(producer.send(record(ask, each)));
        }
        producer.flush();
        ArrayNode offsets = Wire.JSON.createArrayNode();
        for (Future<RecordMetadata> each : sent) {
            RecordMetadata metadata = each.get(WAIT_S, TimeUnit.SECONDS);
            if (metadata.hasOffset()) {
                offsets.add(metadata.offset());
            }
        }
        return offsets;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode ask) {
        Properties settings = Wire.settings(ask);
        settings.putIfAbsent("enable.auto.commit", "false");
        settings.putIfAbsent("auto.offset.reset", "none");
        settings.putIfAbsent("allow.auto.create.topics", "false");
        settings.putIfAbsent("default.api.timeout.ms", "10000");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    JsonNode read(JsonNode ask) {
        List<TopicPartition> assigned = new ArrayList<>();
        for (JsonNode partition : ask.get("partitions")) {
            assigned.add(new TopicPartition(ask.get("topic").asText(), partition.asInt()));
        }
        int count = ask.get("count").asInt();
        ArrayNode found = Wire.JSON.createArrayNode();
        KafkaConsumer<byte[], byte[]> consumer = consumer(ask);
        try {
            consumer.assign(assigned);
            String start = ask.get("start").asText();
            if (start.equals("earliest")) {
                consumer.seekToBeginning(assigned);
            } else if (start.equals("latest")) {
                consumer.seekToEnd(assigned);
            } else {
                assigned.forEach(each -> consumer.seek(each, Long.parseLong(start)));
            }
            long until = System.nanoTime() + (long) (ask.get("timeout_s").asDouble() * 1e9);
            while (found.size() < count && System.nanoTime() < until) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    if (found.size() < count) {
                        found.add(Wire.stored(record));
                    }
                }
            }
        } finally {
            closeAtOnce(consumer);
        }
        return found;
    }

    /** An ordinary close waits for the long poll in flight. */
    @SuppressWarnings("deprecation")  // its successor, CloseOptions, is younger than the oldest version here
    private static void closeAtOnce(KafkaConsumer<byte[], byte[]> consumer) {
        consumer.close(Duration.ZERO);
    }

    JsonNode tailOpen(JsonNode ask) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(ask);
        TopicPartition partition = Wire.partition(ask);
        consumer.assign(List.of(partition));
        consumer.seekToEnd(List.of(partition));
        consumer.position(partition);
        consumer.poll(Duration.ofMillis(300));
        tails.put(++lastTail, consumer);
        return Wire.number(lastTail);
    }

    JsonNode tailNext(JsonNode ask) {
        KafkaConsumer<byte[], byte[]> consumer = tails.get(ask.get("tail").asInt());
        long until = System.nanoTime() + (long) (ask.get("timeout_s").asDouble() * 1e9);
        while (System.nanoTime() < until) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                return Wire.stored(record);
            }
        }
        return Wire.JSON.nullNode();
    }

    JsonNode tailClose(JsonNode ask) {
        closeAtOnce(tails.remove(ask.get("tail").asInt()));
        return Wire.JSON.nullNode();
    }

    JsonNode offsets(JsonNode ask) {
        TopicPartition partition = Wire.partition(ask);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(ask)) {
            return Wire.JSON.createArrayNode()
                .add(consumer.beginningOffsets(List.of(partition)).get(partition))
                .add(consumer.endOffsets(List.of(partition)).get(partition));
        }
    }

    JsonNode offsetForTime(JsonNode ask) {
        TopicPartition partition = Wire.partition(ask);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(ask)) {
            OffsetAndTimestamp found =
                consumer.offsetsForTimes(Map.of(partition, ask.get("timestamp_ms").asLong())).get(partition);
            return found == null ? Wire.JSON.nullNode() : Wire.number(found.offset());
        }
    }

    void close() {
        producers.values().forEach(each -> each.close(Duration.ofSeconds(2)));
        tails.values().forEach(Records::closeAtOnce);
    }
}
