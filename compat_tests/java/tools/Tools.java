import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Kafka's own command-line tools by main class, unchanged, with their input, output and exit caught, so that a run
 * pays for one JVM start and not for thirty. Compiled only for the Kafka version whose tools are under test.
 */
public final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Tools() {}

    private static final class Exited extends RuntimeException {
        Exited(int status) {
            super("exit " + status, null, false, false);
        }
    }

    /** Runs one tool; its status, standard output and standard error. */
    public static JsonNode run(JsonNode ask) throws Exception {
        List<String> words = new ArrayList<>();
        ask.get("args").forEach(each -> words.add(each.asText()));
        byte[] input = Base64.getDecoder().decode(ask.get("stdin").asText());
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        List<Runnable> hooks = new ArrayList<>();
        InputStream inBefore = System.in;
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
        System.setIn(new ByteArrayInputStream(input));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        int status = 0;
        try {
            Class.forName(ask.get("main").asText()).getMethod("main", String[].class)
                .invoke(null, (Object) words.toArray(new String[0]));
        } catch (InvocationTargetException thrown) {
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
            System.setIn(inBefore);
            Exit.resetExitProcedure();
            Exit.resetHaltProcedure();
            Exit.resetShutdownHookAdder();
        }
        return JSON.createObjectNode()
            .put("status", first[0] < 0 ? status : first[0])
            .put("stdout", out.toString(StandardCharsets.UTF_8))
            .put("stderr", err.toString(StandardCharsets.UTF_8));
    }
}
