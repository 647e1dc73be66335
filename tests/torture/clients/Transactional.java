import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's own transactional producer; what it does is what confluent_transactions.py says. */
final class Transactional {
    private static final double ABORTED = 0.15;
    private static final double LEFT = 0.03;
    private static final double HELD = 0.1;
    private static final long PATIENCE_NS = 60_000_000_000L;

    private final Torture torture;
    private final String group;
    private final TopicPartition place;
    private int number = 0;

    Transactional(Torture torture, String name) {
        this.torture = torture;
        group = "tx-" + name;
        place = new TopicPartition(torture.topic, 0);
    }

    /** One client: transactions until `end`, or until it may not go on. */
    void run(String name, String process, Random random, long end) {
        torture.write(torture.event(process, "producer").put("idempotent", true));
        KafkaProducer<String, String> producer = open(process);
        if (producer == null) {
            return;
        }
        try {
            while (!torture.stopping && System.nanoTime() < end && one(producer, name, process, random)) {
                continue;
            }
        } catch (RuntimeException | InterruptedException error) {  // this client is finished
            note(process, error);
        } finally {
            producer.close(Duration.ZERO);
        }
    }

    /** Once more a client that ends what the last one left. */
    void look(String process) {
        torture.write(torture.event(process, "producer").put("idempotent", true));
        KafkaProducer<String, String> producer = open(process);
        if (producer != null) {
            producer.close(Duration.ZERO);
        }
    }

    private KafkaProducer<String, String> open(String process) {
        Properties settings = torture.producing();
        settings.put("transactional.id", group);
        settings.put("transaction.timeout.ms", "10000");
        settings.put("max.block.ms", "15000");
        settings.put("delivery.timeout.ms", "30000");
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        try {
            again(producer::initTransactions);
            fetch(process);
            return producer;
        } catch (RuntimeException error) {
            note(process, error);
            producer.close(Duration.ZERO);
            return null;
        }
    }

    /** The call, again while it says that it took too long: it goes on then where it was. */
    private static void again(Runnable call) {
        long deadline = System.nanoTime() + PATIENCE_NS;
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException late) {
                if (System.nanoTime() > deadline) {
                    throw late;
                }
            }
        }
    }

    private void fetch(String process) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", torture.bootstrap);
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("default.api.timeout.ms", "15000");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            OffsetAndMetadata found = consumer.committed(Set.of(place)).get(place);
            ObjectNode fetched = torture.event(process, "fetched").put("group", group).put("part", place.toString());
            torture.write(fetched.put("offset", found == null ? -1 : found.offset()));
        } catch (RuntimeException error) {  // another time
            note(process, error);
        }
    }

    /** One transaction; false when it is left to whoever comes next. */
    private boolean one(KafkaProducer<String, String> producer, String name, String process, Random random)
            throws InterruptedException {
        String transaction = process + "#" + ++number;
        ObjectNode begun = step(process, "begin", transaction).put("group", group).put("part", place.toString());
        torture.write(begun.put("offset", number));
        try {
            producer.beginTransaction();
            int count = 1 + random.nextInt(6);
            for (int at = 0; at < count; at++) {
                int key = random.nextInt(Torture.KEYS);
                torture.send(
                    producer, process, name + "-k" + key, key % torture.partitions, transaction + "." + at, transaction);
                Thread.sleep((long) (-Math.log(1 - random.nextDouble()) * 1000 / torture.rate));
            }
            double how = random.nextDouble();
            if (how < LEFT) {
                return false;
            }
            if (how > 1 - HELD) {
                Thread.sleep(200 + random.nextInt(800));
            }
            Map<TopicPartition, OffsetAndMetadata> positions = Map.of(place, new OffsetAndMetadata(number));
            producer.sendOffsetsToTransaction(positions, new ConsumerGroupMetadata(group));
            if (how < LEFT + ABORTED) {
                abort(producer, process, transaction);
            } else {
                torture.write(step(process, "commit", transaction));
                again(producer::commitTransaction);
                torture.write(step(process, "committed", transaction));
            }
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            throw fenced;
        } catch (TimeoutException late) {  // of a commit: only the next client can say
            throw late;
        } catch (KafkaException error) {
            note(process, error);
            abort(producer, process, transaction);
        }
        return true;
    }

    private void abort(KafkaProducer<String, String> producer, String process, String transaction) {
        torture.write(step(process, "abort", transaction));
        again(producer::abortTransaction);
        torture.write(step(process, "aborted", transaction));
    }

    private ObjectNode step(String process, String step, String transaction) {
        return torture.event(process, "tx").put("s", step).put("x", transaction);
    }

    private void note(String process, Exception error) {
        torture.write(torture.event(process, "note").put("text", error.toString()));
    }
}
