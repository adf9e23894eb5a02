import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupCoordinatorConfig;
import org.apache.kafka.coordinator.transaction.TransactionLogConfig;
import org.apache.kafka.server.config.*;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Kafka's topic settings: name, default, then what a broker calls it and its unit in ms, or in itself, as NAME*UNIT. */
public class TopicSettings {
    public static void main(String[] given) {
        LogConfig.configKeys().forEach((name, key) -> print(name, key,
            ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(name, List.of())));
        print(TransactionLogConfig.PRODUCER_ID_EXPIRATION_MS_CONFIG, TransactionLogConfig.CONFIG_DEF);
        print(GroupCoordinatorConfig.OFFSETS_RETENTION_MINUTES_CONFIG, GroupCoordinatorConfig.CONFIG_DEF);
        print(GroupCoordinatorConfig.OFFSETS_RETENTION_CHECK_INTERVAL_MS_CONFIG, GroupCoordinatorConfig.CONFIG_DEF);
    }

    static void print(String name, ConfigDef ofBroker) {
        print(name, ofBroker.configKeys().get(name), List.of(new ConfigSynonym(name)));
    }

    static void print(String name, ConfigDef.ConfigKey key, List<ConfigSynonym> synonyms) {
        StringBuilder line = new StringBuilder(name + "\t" + ConfigDef.convertToString(key.defaultValue, key.type));
        for (ConfigSynonym synonym : synonyms)
            line.append("\t").append(synonym.name()).append("*").append(synonym.converter().apply("1"));
        System.out.println(line);
    }
}
