import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints every configuration name of this Kafka: whose it is, the name, and how a broker's is changed while it runs. */
public class ConfigNames {
    private static final Map<String, String> MODES = new TreeMap<>(DynamicBrokerConfig.dynamicConfigUpdateModes());

    public static void main(String[] arguments) {
        Map<String, String> brokers = new TreeMap<>(MODES);
        for (String name : kafka.server.KafkaConfig.configDef().names()) {
            brokers.putIfAbsent(name, "read-only");
        }
        brokers.forEach((name, mode) -> System.out.println("broker\t" + name + "\t" + mode));
        print("topic", LogConfig.configDefCopy());
        print("group", GroupConfig.CONFIG_DEF);
    }

    private static void print(String owner, ConfigDef definition) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            System.out.println(owner + "\t" + key.name + "\t" + (key.internalConfig ? "internal" : ""));
        }
    }
}
