#!/usr/bin/env bash
# Apache Kafka 4.3.1: FileStreamSourceConnector with a small batch.size keeps the last lines of a file until the file grows.
#
# Expected: batch.size bounds how many lines a poll returns, and all of them come. Seen: a poll takes batch.size lines out of what it has read, and the next one
# looks at the rest only after it has read something new; at the end of the file the rest stays in the task's buffer. With the default (2,000) all lines come.
. "$(dirname "$0")/lib.sh"

JARS="$WORK/jars"
maven_jars "$JARS" org.apache.kafka:connect-runtime:4.3.1 org.apache.kafka:connect-file:4.3.1
cat >"$WORK/Lines.java" <<'PROGRAM'
import java.lang.reflect.Proxy;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.connect.file.FileStreamSourceTask;
import org.apache.kafka.connect.source.*;
import org.apache.kafka.connect.storage.OffsetStorageReader;

public class Lines {
    public static void main(String[] arguments) throws Exception {
        Path file = Path.of(arguments[0]);
        var lines = new StringBuilder();
        for (int number = 0; number < 600; number++) lines.append(String.format("%07d\n", number));
        for (String batch : List.of("2000", "5")) {
            Files.writeString(file, lines);
            var task = new FileStreamSourceTask();
            task.initialize(fresh());
            task.start(Map.of("file", file.toString(), "topic", "lines", "batch.size", batch));
            System.out.println(batch + " at the end of the file: " + count(task));
            Files.writeString(file, "one more\n", StandardOpenOption.APPEND);
            System.out.println(batch + " after one more line: " + count(task));
            task.stop();
        }
    }

    static int count(SourceTask task) throws Exception {
        int found = 0;
        for (int empty = 0; empty < 5; ) {  // an empty poll takes a second
            List<SourceRecord> records = task.poll();
            if (records == null) empty++;
            else found += records.size();
        }
        return found;
    }

    /** The context of a connector that has no offsets yet. */
    static SourceTaskContext fresh() {
        var reader = proxy(OffsetStorageReader.class, null);
        return proxy(SourceTaskContext.class, reader);
    }

    static <T> T proxy(Class<T> type, Object answer) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, values) -> answer));
    }
}
PROGRAM
java -cp "$JARS/*" "$WORK/Lines.java" "$WORK/lines.txt" >"$WORK/out.txt" 2>"$WORK/err.txt" || { tail -5 "$WORK/err.txt"; exit 2; }
cat "$WORK/out.txt"
expect "batch.size 2000, of 600 lines" "$(sed -n 1p "$WORK/out.txt")" "2000 at the end of the file: 600"
expect "batch.size 5, of 600 lines" "$(sed -n 3p "$WORK/out.txt")" "5 at the end of the file: 480"
expect "batch.size 5, one more line" "$(sed -n 4p "$WORK/out.txt")" "5 after one more line: 5"
