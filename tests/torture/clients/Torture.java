import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own client as a torture worker: one JVM, one thread per NAME=ROLE, one file of events. The lines are those
 * of tests/torture/history.py; System.nanoTime is the same clock as Python's monotonic one on Linux.
 */
public final class Torture {
    private static final ObjectMapper JSON = new ObjectMapper();
    static final int KEYS = 8;
    private static final int PAYLOAD_BYTES = 1000;

    final String bootstrap;
    final String topic;
    final int partitions;
    private final String group;
    final double rate;
    private final double lifetimeS;
    private final long seed;
    private final PrintWriter out;
    volatile boolean stopping = false;

    private Torture(Map<String, String> options) throws IOException {
        bootstrap = options.get("--bootstrap");
        topic = options.get("--topic");
        partitions = Integer.parseInt(options.get("--partitions"));
        group = options.get("--group");
        rate = Double.parseDouble(options.get("--rate"));
        lifetimeS = Double.parseDouble(options.get("--lifetime-s"));
        seed = Long.parseLong(options.get("--seed"));
        out = new PrintWriter(new FileWriter(options.get("--out"), StandardCharsets.UTF_8, true), false);
    }

    /** Options as for the Python workers, except that --roles is a list NAME=ROLE,... */
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int at = 0; at + 1 < arguments.length; at += 2) {
            options.put(arguments[at], arguments[at + 1]);
        }
        Torture torture = new Torture(options);
        List<Thread> threads = new ArrayList<>();
        for (String each : options.get("--roles").split(",")) {
            String[] pair = each.split("=");
            Thread thread = new Thread(() -> torture.work(pair[0], pair[1]), pair[0]);
            thread.start();
            threads.add(thread);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            torture.stopping = true;
            for (Thread thread : threads) {
                try {
                    thread.join(60_000);
                } catch (InterruptedException interrupted) {
                    return;
                }
            }
            torture.out.flush();
        }));
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void work(String name, String role) {
        Transactional transactional = new Transactional(this, name);
        Random random = new Random(seed ^ name.hashCode());
        Map<TopicPartition, Long> places = new HashMap<>();
        for (int partition = 0; partition < partitions; partition++) {
            places.put(new TopicPartition(topic, partition), 0L);
        }
        for (int incarnation = 1; !stopping; incarnation++) {
            String process = name + "." + incarnation;
            long end = System.nanoTime() + (long) ((0.5 + random.nextDouble()) * lifetimeS * 1e9);
            if (role.equals("transactional")) {
                transactional.run(name, process, random, end);
            } else if (role.equals("idempotent") || role.equals("plain")) {
                produce(name, process, role.equals("idempotent"), random, end);
            } else {
                consume(process, role.equals("subscribe"), places, end);
            }
        }
        if (role.equals("transactional")) {
            transactional.look(name + ".last");
        }
    }

    ObjectNode event(String process, String kind) {
        return JSON.createObjectNode().put("p", process).put("t", System.nanoTime()).put("f", kind);
    }

    synchronized void write(ObjectNode event) {
        out.print(event.toString() + "\n");
        out.flush();
    }

    Properties producing() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("retries", String.valueOf(Integer.MAX_VALUE));
        settings.put("linger.ms", "2");
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "500");
        settings.put("retry.backoff.ms", "20");
        settings.put("retry.backoff.max.ms", "200");
        settings.put("request.timeout.ms", "10000");
        return settings;
    }

    private void produce(String name, String process, boolean idempotent, Random random, long end) {
        Properties settings = producing();
        settings.put("enable.idempotence", String.valueOf(idempotent));
        write(event(process, "producer").put("idempotent", idempotent));
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        try {
            for (int sequence = 1; !stopping && System.nanoTime() < end; sequence++) {
                int number = random.nextInt(KEYS);
                send(producer, process, name + "-k" + number, number % partitions, process + "." + sequence, null);
                Thread.sleep((long) (-Math.log(1 - random.nextDouble()) * 1000 / rate));
            }
            if (stopping) {
                producer.flush();
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } finally {
            producer.close(Duration.ofSeconds(stopping ? 30 : 0));
        }
    }

    /** `transaction` may be null. */
    void send(
            KafkaProducer<String, String> producer, String process, String key, int partition, String value,
            String transaction) {
        ObjectNode begun = event(process, "send").put("s", "invoke");
        if (transaction != null) {
            begun.put("x", transaction);
        }
        write(begun.put("part", topic + "-" + partition).put("key", key).put("v", value));
        String payload = value + " " + ".".repeat(Math.max(0, PAYLOAD_BYTES - value.length() - 1));
        try {
            producer.send(new ProducerRecord<>(topic, partition, key, payload), (metadata, error) -> {
                ObjectNode ended = event(process, "send").put("v", value);
                if (error == null) {
                    write(ended.put("s", "ok").put("offset", metadata.hasOffset() ? metadata.offset() : -1));
                } else {
                    write(ended.put("s", certain(error) ? "fail" : "info").put("error", error.toString()));
                }
            });
        } catch (RuntimeException refused) {  // stays unknown
            write(event(process, "note").put("text", refused.toString()));
        }
    }

    private static boolean certain(Exception error) {
        return error instanceof RecordTooLargeException || error instanceof TopicAuthorizationException
            || error instanceof InvalidRecordException;
    }

    private void consume(String process, boolean subscribe, Map<TopicPartition, Long> places, long end) {
        write(event(process, "consumer").put("committed", subscribe));
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", subscribe ? "read_committed" : "read_uncommitted");
        settings.put("enable.auto.commit", String.valueOf(subscribe));
        settings.put("auto.commit.interval.ms", "500");
        settings.put("auto.offset.reset", subscribe ? "earliest" : "none");
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "500");
        settings.put("session.timeout.ms", "10000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("request.timeout.ms", "10000");
        settings.put("default.api.timeout.ms", "15000");
        settings.put("client.rack", "rack-2");
        if (subscribe) {
            settings.put("group.id", group);
        }
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        try {
            if (subscribe) {
                consumer.subscribe(List.of(topic), new Rebalances(process));
            } else {
                moved(process, "assign", places.keySet(), places);
                consumer.assign(places.keySet());
                places.forEach(consumer::seek);
            }
            while (!stopping && System.nanoTime() < end) {
                poll(process, consumer, places);
            }
        } catch (RuntimeException error) {
            ObjectNode failed = event(process, "poll").put("error", error.toString());
            failed.putObject("records");
            write(failed);
        } finally {
            consumer.close(Duration.ofSeconds(10));
        }
    }

    private void poll(String process, KafkaConsumer<String, String> consumer, Map<TopicPartition, Long> places) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
        if (records.isEmpty()) {
            return;
        }
        ObjectNode polled = event(process, "poll");
        ObjectNode parts = polled.putObject("records");
        for (TopicPartition partition : records.partitions()) {
            ArrayNode rows = parts.putArray(partition.toString());
            for (ConsumerRecord<String, String> record : records.records(partition)) {
                rows.addArray().add(record.offset()).add(record.value().split(" ", 2)[0]);
                places.put(partition, record.offset() + 1);
            }
        }
        write(polled);
    }

    private void moved(
            String process, String kind, Collection<TopicPartition> partitions, Map<TopicPartition, Long> places) {
        ObjectNode moved = event(process, kind);
        ObjectNode parts = moved.putObject("parts");
        partitions.forEach(each -> parts.put(each.toString(), places.get(each)));
        write(moved);
    }

    private final class Rebalances implements ConsumerRebalanceListener {
        private final String process;

        private Rebalances(String process) {
            this.process = process;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            moved(process, "revoke", partitions, Map.of());
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            moved(process, "assign", partitions, Map.of());
        }
    }
}
