import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Topics, configs, groups and the cluster, through the Java client's Admin. */
final class Administration {
    private static final long WAIT_S = 30;

    private final Map<String, Admin> admins = new HashMap<>();
    private boolean warm = false;

    private Admin admin(JsonNode ask) {
        Properties settings = Wire.settings(ask);
        return admins.computeIfAbsent(settings.toString(), any -> {
            settings.put("default.api.timeout.ms", "15000");
            settings.put("request.timeout.ms", "10000");
            return Admin.create(settings);
        });
    }

    /** A new client's first question, answered or given up soon: all that its exception says. */
    JsonNode firstContact(JsonNode ask) throws Exception {
        if (!warm) {
            warm = true;
            contact(ask, "15000");  // a JVM loads classes for seconds
        }
        return contact(ask, "2000");
    }

    private static JsonNode contact(JsonNode ask, String timeoutMs) throws Exception {
        Properties settings = Wire.settings(ask);
        settings.put("default.api.timeout.ms", timeoutMs);
        settings.put("request.timeout.ms", timeoutMs);
        StringBuilder told = new StringBuilder();
        try (Admin admin = Admin.create(settings)) {
            result(admin.listTopics().names());
        } catch (ExecutionException failed) {
            for (Throwable each = failed.getCause(); each != null; each = each.getCause()) {
                told.append(each).append('\n');
            }
        }
        return Wire.JSON.getNodeFactory().textNode(told.toString());
    }

    private static <T> T result(KafkaFuture<T> future) throws Exception {
        return future.get(WAIT_S, TimeUnit.SECONDS);
    }

    private static JsonNode done(KafkaFuture<Void> future) throws Exception {
        result(future);
        return Wire.JSON.nullNode();
    }

    // -- transactions -------------------------------------------------------------------------------------------

    JsonNode transactions(JsonNode ask) throws Exception {
        ObjectNode found = Wire.JSON.createObjectNode();
        for (TransactionListing each : result(admin(ask).listTransactions().all())) {
            found.put(each.transactionalId(), each.state().toString());
        }
        return found;
    }

    JsonNode describeTransaction(JsonNode ask) throws Exception {
        String id = ask.get("transactional_id").asText();
        TransactionDescription found = result(admin(ask).describeTransactions(List.of(id)).description(id));
        ObjectNode node = Wire.JSON.createObjectNode();
        node.put("state", found.state().toString()).put("producer_id", found.producerId());
        node.put("timeout_ms", found.transactionTimeoutMs());
        node.set("partitions", Wire.partitions(found.topicPartitions()));
        return node;
    }

    JsonNode producers(JsonNode ask) throws Exception {
        TopicPartition partition = Wire.partition(ask);
        ArrayNode found = Wire.JSON.createArrayNode();
        for (ProducerState each : result(
                admin(ask).describeProducers(List.of(partition)).partitionResult(partition)).activeProducers()) {
            found.addArray().add(each.producerId()).add(each.producerEpoch())
                .add(each.currentTransactionStartOffset().orElse(-1));
        }
        return found;
    }

    // -- topics -------------------------------------------------------------------------------------------------

    JsonNode createTopic(JsonNode ask) throws Exception {
        Map<String, String> configs = new HashMap<>();
        ask.get("configs").properties().forEach(each -> configs.put(each.getKey(), each.getValue().asText()));
        NewTopic wanted = new NewTopic(
            ask.get("topic").asText(), ask.get("partitions").asInt(), (short) ask.get("replication_factor").asInt());
        return done(admin(ask).createTopics(List.of(wanted.configs(configs))).all());
    }

    JsonNode deleteTopic(JsonNode ask) throws Exception {
        return done(admin(ask).deleteTopics(List.of(ask.get("topic").asText())).all());
    }

    JsonNode topics(JsonNode ask) throws Exception {
        return Wire.JSON.valueToTree(result(admin(ask).listTopics().names()));
    }

    JsonNode describeTopic(JsonNode ask) throws Exception {
        String name = ask.get("topic").asText();
        TopicDescription found = result(admin(ask).describeTopics(List.of(name)).allTopicNames()).get(name);
        return Wire.JSON.createObjectNode()
            .put("partitions", found.partitions().size())
            .put("topic_id", found.topicId().toString());
    }

    JsonNode addPartitions(JsonNode ask) throws Exception {
        NewPartitions wanted = NewPartitions.increaseTo(ask.get("total").asInt());
        return done(admin(ask).createPartitions(Map.of(ask.get("topic").asText(), wanted)).all());
    }

    JsonNode deleteRecords(JsonNode ask) throws Exception {
        TopicPartition partition = Wire.partition(ask);
        RecordsToDelete wanted = RecordsToDelete.beforeOffset(ask.get("before_offset").asLong());
        return Wire.number(result(admin(ask).deleteRecords(Map.of(partition, wanted)).lowWatermarks().get(partition))
            .lowWatermark());
    }

    private static ConfigResource topicResource(JsonNode ask) {
        return new ConfigResource(ConfigResource.Type.TOPIC, ask.get("topic").asText());
    }

    JsonNode topicConfig(JsonNode ask) throws Exception {
        ConfigResource resource = topicResource(ask);
        ObjectNode found = Wire.JSON.createObjectNode();
        result(admin(ask).describeConfigs(List.of(resource)).all()).get(resource).entries()
            .forEach(entry -> found.put(entry.name(), entry.value()));
        return found;
    }

    JsonNode setConfig(JsonNode ask) throws Exception {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        ask.get("configs").properties().forEach(each -> {
            boolean reset = each.getValue().isNull();
            ConfigEntry entry = new ConfigEntry(each.getKey(), reset ? null : each.getValue().asText());
            changes.add(new AlterConfigOp(entry, reset ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET));
        });
        return done(admin(ask).incrementalAlterConfigs(Map.of(topicResource(ask), changes)).all());
    }

    // -- groups -------------------------------------------------------------------------------------------------

    private static String group(JsonNode ask) {
        return ask.get("group").asText();
    }

    JsonNode committed(JsonNode ask) throws Exception {
        OffsetAndMetadata found = result(
            admin(ask).listConsumerGroupOffsets(group(ask)).partitionsToOffsetAndMetadata()).get(Wire.partition(ask));
        return found == null ? Wire.JSON.nullNode() : Wire.number(found.offset());
    }

    @SuppressWarnings({"deprecation", "removal"})  // its successor, listGroups, is younger than the oldest version here
    JsonNode groups(JsonNode ask) throws Exception {
        ArrayNode found = Wire.JSON.createArrayNode();
        result(admin(ask).listConsumerGroups().all()).forEach(each -> found.add(each.groupId()));
        return found;
    }

    @SuppressWarnings({"deprecation", "removal"})  // groupState() is younger than the oldest version here
    JsonNode describeGroup(JsonNode ask) throws Exception {
        ConsumerGroupDescription found =
            result(admin(ask).describeConsumerGroups(List.of(group(ask))).all()).get(group(ask));
        ObjectNode answer = Wire.JSON.createObjectNode();
        answer.put("state", found.state().toString().toLowerCase().replaceAll("[^a-z]", ""));
        // it refuses to describe groups of other protocol types, and calls those without one simple
        answer.put("protocol_type", found.isSimpleConsumerGroup() ? "" : "consumer");
        answer.put("protocol", found.partitionAssignor());
        ArrayNode members = answer.putArray("members");
        for (MemberDescription each : found.members()) {
            members.addObject()
                .put("member_id", each.consumerId())
                .put("client_id", each.clientId())
                .put("host", each.host())
                .set("assignment", Wire.partitions(each.assignment().topicPartitions()));
        }
        return answer;
    }

    JsonNode deleteGroup(JsonNode ask) throws Exception {
        return done(admin(ask).deleteConsumerGroups(List.of(group(ask))).all());
    }

    JsonNode setOffset(JsonNode ask) throws Exception {
        OffsetAndMetadata wanted = new OffsetAndMetadata(ask.get("offset").asLong());
        return done(admin(ask).alterConsumerGroupOffsets(group(ask), Map.of(Wire.partition(ask), wanted)).all());
    }

    JsonNode deleteOffset(JsonNode ask) throws Exception {
        return done(admin(ask).deleteConsumerGroupOffsets(group(ask), Set.of(Wire.partition(ask))).all());
    }

    // -- the cluster ----------------------------------------------------------------------------------------------

    JsonNode cluster(JsonNode ask) throws Exception {
        DescribeClusterResult asked = admin(ask).describeCluster();
        ObjectNode found = Wire.JSON.createObjectNode();
        found.put("cluster_id", result(asked.clusterId()));
        found.put("controller_id", result(asked.controller()).id());
        ArrayNode brokers = found.putArray("brokers");
        for (Node node : result(asked.nodes())) {
            brokers.addArray().add(node.id()).add(node.host()).add(node.port());
        }
        return found;
    }

    void close() {
        admins.values().forEach(each -> each.close(Duration.ofSeconds(2)));
    }
}
