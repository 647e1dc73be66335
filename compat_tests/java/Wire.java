import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;

/** Between JSON and the Java client's types. */
final class Wire {
    static final ObjectMapper JSON = new ObjectMapper();

    private Wire() {}

    static Properties settings(JsonNode ask) {
        Properties settings = new Properties();
        ask.get("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        String token = settings.getProperty("sasl.oauthbearer.token.endpoint.url");
        if (token != null) {
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token);
        }
        return settings;
    }

    /** Of these, where the broker is and how it is reached. */
    static Properties connection(JsonNode ask) {
        Properties settings = settings(ask);
        settings.keySet().removeIf(each -> !each.toString().matches("bootstrap\\.servers|(security|ssl|sasl)\\..*"));
        return settings;
    }

    static TopicPartition partition(JsonNode ask) {
        return new TopicPartition(ask.get("topic").asText(), ask.get("partition").asInt());
    }

    static List<String> texts(JsonNode array) {
        List<String> found = new ArrayList<>();
        array.forEach(each -> found.add(each.asText()));
        return found;
    }

    static JsonNode number(long value) {
        return JSON.getNodeFactory().numberNode(value);
    }

    static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static ArrayNode partitions(Iterable<TopicPartition> partitions) {
        ArrayNode found = JSON.createArrayNode();
        partitions.forEach(each -> found.addArray().add(each.topic()).add(each.partition()));
        return found;
    }

    static ObjectNode stored(ConsumerRecord<byte[], byte[]> record) {
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
}
