import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.protocol.Errors;

/**
 * One JVM that does what compat_tests asks: one JSON object per line in, one per line out. It answers "ok" or
 * "error" with Kafka's error code. The sources in this directory compile against every kafka-clients under test, so
 * they use what the oldest has and the newest still has.
 */
public final class Driver {
    private static final PrintStream ANSWERS = System.out;
    private static final InputStream QUESTIONS = System.in;

    private final Records records = new Records();
    private final Members members = new Members();
    private final Administration administration = new Administration();
    private final Transactions transactions = new Transactions();

    public static void main(String[] args) throws IOException {
        System.setOut(System.err);
        Driver driver = new Driver();
        BufferedReader lines = new BufferedReader(new InputStreamReader(QUESTIONS, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode answer = Wire.JSON.createObjectNode();
            try {
                answer.set("ok", driver.answer(Wire.JSON.readTree(line)));
            } catch (Throwable thrown) {
                Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
                answer.putObject("error")
                    .put("code", code(cause))
                    .put("class", cause.getClass().getName())
                    .put("text", String.valueOf(cause.getMessage()));
            }
            ANSWERS.println(Wire.JSON.writeValueAsString(answer));
            ANSWERS.flush();
        }
        driver.close();
    }

    /** The client has classes of its own for some errors of the broker. */
    static short code(Throwable cause) {
        if (cause instanceof OffsetOutOfRangeException) {
            return Errors.OFFSET_OUT_OF_RANGE.code();
        }
        if (cause instanceof CommitFailedException) {  // does not tell this from an unknown member
            return Errors.ILLEGAL_GENERATION.code();
        }
        short code = Errors.forException(cause).code();
        // a producer that may not go on says so in a general exception, with the reason inside
        return code == -1 && cause.getCause() != null ? code(cause.getCause()) : code;
    }

    private JsonNode answer(JsonNode ask) throws Exception {
        String what = ask.get("do").asText();
        return switch (what) {
            case "version" -> Wire.JSON.getNodeFactory().textNode(version());
            case "produce" -> records.produce(ask);
            case "send_each" -> records.sendEach(ask);
            case "read" -> records.read(ask);
            case "tail_open" -> records.tailOpen(ask);
            case "tail_next" -> records.tailNext(ask);
            case "tail_close" -> records.tailClose(ask);
            case "offsets" -> records.offsets(ask);
            case "offset_for_time" -> records.offsetForTime(ask);
            case "join" -> members.join(ask);
            case "poll" -> members.poll(ask);
            case "assignment" -> members.assignment(ask);
            case "commit" -> members.commit(ask);
            case "leave" -> members.leave(ask);
            case "committed" -> administration.committed(ask);
            case "groups" -> administration.groups(ask);
            case "describe_group" -> administration.describeGroup(ask);
            case "delete_group" -> administration.deleteGroup(ask);
            case "set_offset" -> administration.setOffset(ask);
            case "delete_offset" -> administration.deleteOffset(ask);
            case "tx_open" -> transactions.open(ask);
            case "tx_begin" -> transactions.begin(ask);
            case "tx_send" -> transactions.send(ask);
            case "tx_poll" -> transactions.poll(ask);
            case "tx_positions" -> transactions.sendPositions(ask);
            case "tx_commit" -> transactions.commit(ask);
            case "tx_abort" -> transactions.abort(ask);
            case "tx_close" -> transactions.close(ask);
            case "transactions" -> administration.transactions(ask);
            case "describe_transaction" -> administration.describeTransaction(ask);
            case "producers" -> administration.producers(ask);
            case "create_topic" -> administration.createTopic(ask);
            case "delete_topic" -> administration.deleteTopic(ask);
            case "first_contact" -> administration.firstContact(ask);
            case "topics" -> administration.topics(ask);
            case "describe_topic" -> administration.describeTopic(ask);
            case "add_partitions" -> administration.addPartitions(ask);
            case "delete_records" -> administration.deleteRecords(ask);
            case "topic_config" -> administration.topicConfig(ask);
            case "set_config" -> administration.setConfig(ask);
            case "cluster" -> administration.cluster(ask);
            case "tool" -> tool(ask);
            default -> throw new IllegalArgumentException("unknown command " + what);
        };
    }

    private static String version() throws IOException {
        Properties found = new Properties();
        try (InputStream properties = Driver.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            found.load(properties);
        }
        return found.getProperty("version");
    }

    /** Only the version whose command-line tools are under test has this class. */
    private static JsonNode tool(JsonNode ask) throws Exception {
        try {
            return (JsonNode) Class.forName("Tools").getMethod("run", JsonNode.class).invoke(null, ask);
        } catch (InvocationTargetException thrown) {
            throw thrown.getCause() instanceof Exception cause ? cause : thrown;
        }
    }

    private void close() {
        members.close();
        transactions.close();
        records.close();
        administration.close();
    }
}
