import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers; one with a source has a consumer in that source's group, too. */
final class Transactions {
    private static final Duration SLICE = Duration.ofMillis(50);

    private static final class Open {
        KafkaProducer<byte[], byte[]> producer;
        KafkaConsumer<byte[], byte[]> consumer;
        final Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
    }

    private final Map<Integer, Open> all = new HashMap<>();
    private int last = 0;

    JsonNode open(JsonNode ask) {
        Open open = new Open();
        Properties settings = Wire.settings(ask);
        Object group = settings.remove("group.id");
        settings.put("max.block.ms", "20000");
        settings.put("delivery.timeout.ms", "20000");
        settings.put("request.timeout.ms", "10000");
        open.producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        try {
            open.producer.initTransactions();
        } catch (RuntimeException thrown) {
            open.producer.close(Duration.ZERO);
            throw thrown;
        }
        if (group != null) {
            open.consumer = consumer(Wire.connection(ask), group);
            open.consumer.subscribe(Wire.texts(ask.get("topics")));
        }
        all.put(++last, open);
        return Wire.number(last);
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Properties settings, Object group) {
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "1");
        settings.put("default.api.timeout.ms", "15000");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Open get(JsonNode ask) {
        return all.get(ask.get("producer").asInt());
    }

    JsonNode begin(JsonNode ask) {
        get(ask).producer.beginTransaction();
        return Wire.JSON.nullNode();
    }

    JsonNode send(JsonNode ask) throws Exception {
        return Records.written(get(ask).producer, ask);
    }

    JsonNode poll(JsonNode ask) {
        Open open = get(ask);
        int count = ask.get("count").asInt();
        long until = System.nanoTime() + (long) (ask.get("timeout_s").asDouble() * 1e9);
        ArrayNode found = Wire.JSON.createArrayNode();
        while (found.size() < count && System.nanoTime() < until) {
            for (ConsumerRecord<byte[], byte[]> record : open.consumer.poll(SLICE)) {
                found.add(Wire.stored(record));
                open.positions.put(
                    new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
        }
        return found;
    }

    JsonNode sendPositions(JsonNode ask) {
        Open open = get(ask);
        open.producer.sendOffsetsToTransaction(open.positions, open.consumer.groupMetadata());
        return Wire.JSON.nullNode();
    }

    JsonNode commit(JsonNode ask) {
        get(ask).producer.commitTransaction();
        return Wire.JSON.nullNode();
    }

    JsonNode abort(JsonNode ask) {
        get(ask).producer.abortTransaction();
        return Wire.JSON.nullNode();
    }

    JsonNode close(JsonNode ask) {
        end(all.remove(ask.get("producer").asInt()), Duration.ofSeconds(5));
        return Wire.JSON.nullNode();
    }

    @SuppressWarnings("deprecation")  // the successor of a close with a Duration is younger than the oldest version here
    private static void end(Open open, Duration leaving) {
        open.producer.close(Duration.ZERO);
        if (open.consumer != null) {
            open.consumer.close(leaving);
        }
    }

    void close() {
        List.copyOf(all.values()).forEach(each -> end(each, Duration.ZERO));
    }
}
