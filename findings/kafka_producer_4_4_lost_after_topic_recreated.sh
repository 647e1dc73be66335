#!/usr/bin/env bash
# kafka-clients 4.4.0 (Apache Kafka 4.4.0): sendOffsetsToTransaction never gets over a consumed topic that was deleted and made anew.
#
# Expected, as with 4.3.1's client: the offsets are committed to the new topic, or an error that a new transaction cures. Seen: TxnOffsetCommit 6 names topics by id;
# the broker does not know the old id, the client sends the same request again every 100 ms until max.block.ms is over, does not ask for metadata,
# and the same producer's next transaction fails as well. 4.3.1, which names topics by name, goes on at once.
. "$(dirname "$0")/lib.sh"

kafka_jars 4.4.0
kafka_broker 4.4.0 offsets.topic.replication.factor=1 transaction.state.log.replication.factor=1 transaction.state.log.min.isr=1
cat >"$WORK/Recreated.java" <<'PROGRAM'
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Recreated {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        String topic = "t-" + arguments[1];
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1), new NewTopic("out-" + topic, 1, (short) 1))).all().get();
            Thread.sleep(2000);
            Map<String, Object> more = new HashMap<>(settings);
            more.put("transactional.id", "id-" + arguments[1]);
            more.put("max.block.ms", 15_000);
            var producer = new KafkaProducer<>(more, new ByteArraySerializer(), new ByteArraySerializer());
            producer.initTransactions();
            var group = new ConsumerGroupMetadata("g-" + arguments[1]);
            for (int round = 0; round < 2; round++) {
                String said = "committed";
                try {
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>("out-" + topic, new byte[1])).get(15, TimeUnit.SECONDS);
                    producer.sendOffsetsToTransaction(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(round)), group);
                    if (round == 0) {
                        producer.commitTransaction();
                        admin.deleteTopics(List.of(topic)).all().get();
                        Thread.sleep(2000);
                        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
                        Thread.sleep(2000);
                    } else producer.commitTransaction();
                } catch (Exception error) {
                    said = error.getClass().getSimpleName();
                }
                System.out.println(round + " " + said);
            }
            System.out.flush();
            Runtime.getRuntime().halt(0);  // close() may wait without end
        }
    }
}
PROGRAM
for version in 4.3.1 4.4.0; do
    clients="$WORK/clients-$version"
    mkdir -p "$clients"
    mvn -q -B dependency:copy -Dartifact="org.apache.kafka:kafka-clients:$version" -DoutputDirectory="$clients" >"$WORK/maven.log" 2>&1
    others=$(ls "$JARS"/*.jar | grep -v kafka-clients | paste -sd:)
    timeout 120 java -Xmx256m -cp "$clients/*:$others" "$WORK/Recreated.java" "$SERVER" "$version" >"$WORK/$version.txt" 2>"$WORK/$version.err" || tail -3 "$WORK/$version.err"
    echo "$version: $(paste -sd' ' "$WORK/$version.txt")"
done
expect "4.3.1, second transaction" "$(sed -n 2p "$WORK/4.3.1.txt")" "1 committed"
expect "4.4.0, second transaction" "$(sed -n 2p "$WORK/4.4.0.txt")" "1 TimeoutException"
