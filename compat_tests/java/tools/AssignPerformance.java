import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * ConsumerPerformance without a group: assigns every partition of a topic and reads from the beginning.
 * Arguments: bootstrap topic records [client-property=value ...]. Prints one line: records, bytes, seconds from the
 * first record to the last, MB/s.
 */
public final class AssignPerformance {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        long wanted = Long.parseLong(args[2]);
        long records = 0;
        long bytes = 0;
        long first = 0;
        ByteArrayDeserializer asIs = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, asIs, asIs)) {
            List<TopicPartition> all = consumer.partitionsFor(args[1]).stream()
                .map((PartitionInfo each) -> new TopicPartition(each.topic(), each.partition())).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long quiet = System.nanoTime();
            while (records < wanted && System.nanoTime() - quiet < 20_000_000_000L) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    records++;
                    bytes += record.value() == null ? 0 : record.value().length;
                    quiet = System.nanoTime();
                    first = first == 0 ? quiet : first;
                }
            }
        }
        double seconds = (System.nanoTime() - first) / 1e9;
        System.out.printf("%d records, %d bytes, %.3f s, %.1f MB/s%n", records, bytes, seconds, bytes / seconds / 1e6);
    }
}
