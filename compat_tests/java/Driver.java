import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Exit;

/**
 * One JVM that does what compat_tests asks: one JSON object per line in, one per line out. It answers "ok" or
 * "error" with Kafka's error code. It also runs Kafka's own command-line tools by main class, unchanged, with their
 * input, output and exit caught, so that a run pays for one JVM start and not for thirty.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream ANSWERS = System.out;
    private static final InputStream QUESTIONS = System.in;
    private static final long WAIT_S = 30;

    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<String, Admin> admins = new HashMap<>();
    private final Map<Integer, KafkaConsumer<byte[], byte[]>> tails = new HashMap<>();
    private int lastTail = 0;

    public static void main(String[] args) throws IOException {
        System.setOut(System.err);
        Driver driver = new Driver();
        BufferedReader lines = new BufferedReader(new InputStreamReader(QUESTIONS, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", driver.answer(JSON.readTree(line)));
            } catch (Throwable thrown) {
                Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
                Errors error = Errors.forException(cause);
                boolean outOfRange = cause instanceof OffsetOutOfRangeException;
                answer.putObject("error")
                    .put("code", outOfRange ? Errors.OFFSET_OUT_OF_RANGE.code() : error.code())
                    .put("class", cause.getClass().getName())
                    .put("text", String.valueOf(cause.getMessage()));
            }
            ANSWERS.println(JSON.writeValueAsString(answer));
            ANSWERS.flush();
        }
        driver.close();
    }

    private JsonNode answer(JsonNode ask) throws Exception {
        String what = ask.get("do").asText();
        return switch (what) {
            case "version" -> JSON.getNodeFactory().textNode(AppInfoParser.getVersion());
            case "produce" -> produce(ask);
            case "read" -> read(ask);
            case "tail_open" -> tailOpen(ask);
            case "tail_next" -> tailNext(ask);
            case "tail_close" -> tailClose(ask);
            case "offsets" -> offsets(ask);
            case "offset_for_time" -> offsetForTime(ask);
            case "create_topic" -> createTopic(ask);
            case "delete_topic" -> deleteTopic(ask);
            case "topics" -> JSON.valueToTree(admin(ask).listTopics().names().get(WAIT_S, TimeUnit.SECONDS));
            case "describe_topic" -> describeTopic(ask);
            case "topic_config" -> topicConfig(ask);
            case "cluster" -> cluster(ask);
            case "tool" -> tool(ask);
            default -> throw new IllegalArgumentException("unknown command " + what);
        };
    }

    // -- produce ----------------------------------------------------------------------------------------------

    private JsonNode produce(JsonNode ask) throws Exception {
        Properties settings = settings(ask);
        settings.putIfAbsent("delivery.timeout.ms", "20000");
        settings.putIfAbsent("request.timeout.ms", "10000");
        String key = settings.toString();
        KafkaProducer<byte[], byte[]> producer = producers.computeIfAbsent(
            key, any -> new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer()));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode each : ask.get("messages")) {
            Long timestamp = each.get("timestamp_ms").isNull() ? null : each.get("timestamp_ms").asLong();
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                ask.get("topic").asText(), each.get("partition").asInt(), timestamp,
                bytes(each.get("key")), bytes(each.get("value")));
            for (JsonNode header : each.get("headers")) {
                record.headers().add(header.get(0).asText(), bytes(header.get(1)));
            }
            sent.add(producer.send(record));
        }
        producer.flush();
        ArrayNode offsets = JSON.createArrayNode();
        for (Future<RecordMetadata> each : sent) {
            RecordMetadata metadata = each.get(WAIT_S, TimeUnit.SECONDS);
            if (metadata.hasOffset()) {
                offsets.add(metadata.offset());
            }
        }
        return offsets;
    }

    // -- consume ----------------------------------------------------------------------------------------------

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode ask) {
        Properties settings = settings(ask);
        settings.putIfAbsent("enable.auto.commit", "false");
        settings.putIfAbsent("auto.offset.reset", "none");
        settings.putIfAbsent("allow.auto.create.topics", "false");
        settings.putIfAbsent("default.api.timeout.ms", "10000");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private JsonNode read(JsonNode ask) {
        List<TopicPartition> assigned = new ArrayList<>();
        for (JsonNode partition : ask.get("partitions")) {
            assigned.add(new TopicPartition(ask.get("topic").asText(), partition.asInt()));
        }
        int count = ask.get("count").asInt();
        ArrayNode found = JSON.createArrayNode();
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
                        found.add(stored(record));
                    }
                }
            }
        } finally {
            closeAtOnce(consumer);
        }
        return found;
    }

    /** An ordinary close waits for the long poll in flight. */
    private static void closeAtOnce(KafkaConsumer<byte[], byte[]> consumer) {
        consumer.close(CloseOptions.timeout(Duration.ZERO));
    }

    private JsonNode tailOpen(JsonNode ask) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(ask);
        TopicPartition partition = partition(ask);
        consumer.assign(List.of(partition));
        consumer.seekToEnd(List.of(partition));
        consumer.position(partition);
        consumer.poll(Duration.ofMillis(300));
        tails.put(++lastTail, consumer);
        return JSON.getNodeFactory().numberNode(lastTail);
    }

    private JsonNode tailNext(JsonNode ask) {
        KafkaConsumer<byte[], byte[]> consumer = tails.get(ask.get("tail").asInt());
        long until = System.nanoTime() + (long) (ask.get("timeout_s").asDouble() * 1e9);
        while (System.nanoTime() < until) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                return stored(record);
            }
        }
        return JSON.nullNode();
    }

    private JsonNode tailClose(JsonNode ask) {
        closeAtOnce(tails.remove(ask.get("tail").asInt()));
        return JSON.nullNode();
    }

    private JsonNode offsets(JsonNode ask) {
        TopicPartition partition = partition(ask);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(ask)) {
            return JSON.createArrayNode()
                .add(consumer.beginningOffsets(List.of(partition)).get(partition))
                .add(consumer.endOffsets(List.of(partition)).get(partition));
        }
    }

    private JsonNode offsetForTime(JsonNode ask) {
        TopicPartition partition = partition(ask);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(ask)) {
            OffsetAndTimestamp found =
                consumer.offsetsForTimes(Map.of(partition, ask.get("timestamp_ms").asLong())).get(partition);
            return found == null ? JSON.nullNode() : JSON.getNodeFactory().numberNode(found.offset());
        }
    }

    // -- administration -----------------------------------------------------------------------------------------

    private Admin admin(JsonNode ask) {
        return admins.computeIfAbsent(settings(ask).getProperty("bootstrap.servers"), any -> {
            Properties settings = settings(ask);
            settings.put("default.api.timeout.ms", "15000");
            settings.put("request.timeout.ms", "10000");
            return Admin.create(settings);
        });
    }

    private JsonNode createTopic(JsonNode ask) throws Exception {
        Map<String, String> configs = new HashMap<>();
        ask.get("configs").fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        NewTopic wanted = new NewTopic(
            ask.get("topic").asText(), ask.get("partitions").asInt(), (short) ask.get("replication_factor").asInt());
        admin(ask).createTopics(List.of(wanted.configs(configs))).all().get(WAIT_S, TimeUnit.SECONDS);
        return JSON.nullNode();
    }

    private JsonNode deleteTopic(JsonNode ask) throws Exception {
        admin(ask).deleteTopics(List.of(ask.get("topic").asText())).all().get(WAIT_S, TimeUnit.SECONDS);
        return JSON.nullNode();
    }

    private JsonNode describeTopic(JsonNode ask) throws Exception {
        String name = ask.get("topic").asText();
        TopicDescription found =
            admin(ask).describeTopics(List.of(name)).allTopicNames().get(WAIT_S, TimeUnit.SECONDS).get(name);
        return JSON.createObjectNode()
            .put("partitions", found.partitions().size())
            .put("topic_id", found.topicId().toString());
    }

    private JsonNode topicConfig(JsonNode ask) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, ask.get("topic").asText());
        ObjectNode found = JSON.createObjectNode();
        admin(ask).describeConfigs(List.of(resource)).all().get(WAIT_S, TimeUnit.SECONDS).get(resource).entries()
            .forEach(entry -> found.put(entry.name(), entry.value()));
        return found;
    }

    private JsonNode cluster(JsonNode ask) throws Exception {
        DescribeClusterResult result = admin(ask).describeCluster();
        ObjectNode found = JSON.createObjectNode();
        found.put("cluster_id", result.clusterId().get(WAIT_S, TimeUnit.SECONDS));
        found.put("controller_id", result.controller().get(WAIT_S, TimeUnit.SECONDS).id());
        ArrayNode brokers = found.putArray("brokers");
        for (Node node : result.nodes().get(WAIT_S, TimeUnit.SECONDS)) {
            brokers.addArray().add(node.id()).add(node.host()).add(node.port());
        }
        return found;
    }

    // -- Kafka's own tools ----------------------------------------------------------------------------------------

    private static final class Exited extends RuntimeException {
        Exited(int status) {
            super("exit " + status, null, false, false);
        }
    }

    private JsonNode tool(JsonNode ask) throws Exception {
        List<String> words = new ArrayList<>();
        ask.get("args").forEach(each -> words.add(each.asText()));
        byte[] input = bytes(ask.get("stdin"));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        List<Runnable> hooks = new ArrayList<>();
        PrintStream outBefore = System.out;
        PrintStream errBefore = System.err;
        int[] first = {-1};  // some tools catch what their own exit throws, and exit again
        Exit.Procedure exit = (status, message) -> {
            first[0] = first[0] < 0 ? status : first[0];
            throw new Exited(status);
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        System.setIn(new ByteArrayInputStream(input == null ? new byte[0] : input));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        int status = 0;
        try {
            Class.forName(ask.get("main").asText()).getMethod("main", String[].class)
                .invoke(null, (Object) words.toArray(new String[0]));
        } catch (java.lang.reflect.InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) {
                thrown.getCause().printStackTrace(System.err);
                status = 1;
            }
        } finally {
            hooks.forEach(Runnable::run);
            System.out.flush();
            System.err.flush();
            System.setOut(outBefore);
            System.setErr(errBefore);
            System.setIn(QUESTIONS);
            Exit.resetExitProcedure();
            Exit.resetHaltProcedure();
            Exit.resetShutdownHookAdder();
        }
        return JSON.createObjectNode()
            .put("status", first[0] < 0 ? status : first[0])
            .put("stdout", out.toString(StandardCharsets.UTF_8))
            .put("stderr", err.toString(StandardCharsets.UTF_8));
    }

    // -- translation ------------------------------------------------------------------------------------------------

    private static Properties settings(JsonNode ask) {
        Properties settings = new Properties();
        for (Iterator<Map.Entry<String, JsonNode>> each = ask.get("settings").fields(); each.hasNext();) {
            Map.Entry<String, JsonNode> entry = each.next();
            settings.put(entry.getKey(), entry.getValue().asText());
        }
        return settings;
    }

    private static TopicPartition partition(JsonNode ask) {
        return new TopicPartition(ask.get("topic").asText(), ask.get("partition").asInt());
    }

    private static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private static ObjectNode stored(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = JSON.createObjectNode();
        node.put("partition", record.partition()).put("offset", record.offset());
        node.put("key", text(record.key())).put("value", text(record.value()));
        node.put("timestamp_ms", record.timestamp()).put("timestamp_type", record.timestampType().name);
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return node;
    }

    private void close() {
        producers.values().forEach(each -> each.close(Duration.ofSeconds(2)));
        tails.values().forEach(Driver::closeAtOnce);
        admins.values().forEach(each -> each.close(Duration.ofSeconds(2)));
    }
}
