import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.transaction.TransactionLogConfig;
import org.apache.kafka.server.config.*;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Kafka's topic settings: name, default, then what a broker calls it and its unit in ms, or in itself, as NAME*UNIT. */
public class TopicSettings {
    public static void main(String[] given) {
        LogConfig.configKeys().forEach((name, key) -> print(name, key,
            ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(name, List.of())));
        String producers = TransactionLogConfig.PRODUCER_ID_EXPIRATION_MS_CONFIG;
        print(producers, TransactionLogConfig.CONFIG_DEF.configKeys().get(producers), List.of(new ConfigSynonym(producers)));
    }

    static void print(String name, ConfigDef.ConfigKey key, List<ConfigSynonym> synonyms) {
        StringBuilder line = new StringBuilder(name + "\t" + ConfigDef.convertToString(key.defaultValue, key.type));
        for (ConfigSynonym synonym : synonyms)
            line.append("\t").append(synonym.name()).append("*").append(synonym.converter().apply("1"));
        System.out.println(line);
    }
}
