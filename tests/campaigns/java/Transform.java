import java.io.PrintStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Reads, transforms, writes, one transaction per poll; see tests/campaigns/transforming.py, which says the same. */
public final class Transform {
    private static final PrintStream SAID = System.out;
    private static final long PATIENCE_NS = 60_000_000_000L;
    private static volatile boolean stopping = false;

    private Transform() {}

    /** BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL-ID. */
    public static void main(String[] words) throws Exception {
        Thread worker = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                worker.join(30_000);
            } catch (InterruptedException interrupted) {
                return;
            }
        }));
        while (!stopping) {
            try (KafkaProducer<String, String> producer = producer(words[0], words[4]);
                    KafkaConsumer<String, String> consumer = consumer(words[0], words[3])) {
                run(producer, consumer, words[1], words[2]);
            } catch (RuntimeException error) {
                SAID.println("again: " + error);
                Thread.sleep(100);
            }
        }
    }

    private static void run(
            KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer, String source,
            String target) {
        again(producer::initTransactions);
        consumer.subscribe(List.of(source));
        while (!stopping) {
            ConsumerRecords<String, String> polled = consumer.poll(Duration.ofMillis(200));
            if (polled.isEmpty()) {
                continue;
            }
            ConsumerGroupMetadata group = consumer.groupMetadata();
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            producer.beginTransaction();
            for (ConsumerRecord<String, String> each : polled) {
                producer.send(new ProducerRecord<>(target, each.partition(), each.key(), each.value() + "!"));
                positions.put(
                    new TopicPartition(source, each.partition()), new OffsetAndMetadata(each.offset() + 1));
            }
            producer.sendOffsetsToTransaction(positions, group);
            again(producer::commitTransaction);
            SAID.println("committed " + polled.count());
        }
    }

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

    private static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", "15000");
        settings.put("max.block.ms", "10000");
        settings.put("request.timeout.ms", "5000");
        settings.put("delivery.timeout.ms", "15000");
        settings.put("reconnect.backoff.max.ms", "200");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "100");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("request.timeout.ms", "10000");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }
}
