import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;

/**
 * A consumer that goes on where its group has committed: ResumeGroup BOOTSTRAP GROUP TOPIC COUNT SECONDS.
 *
 * It reads partition 0 until it has COUNT records or the time is over, commits with the leader epoch of the last one, as
 * the client does by itself, and prints the offsets.
 */
public class ResumeGroup {
    public static void main(String[] given) {
        var partition = new TopicPartition(given[2], 0);
        long end = System.currentTimeMillis() + 1000 * Long.parseLong(given[4]);
        int count = Integer.parseInt(given[3]), seen = 0;
        var settings = new HashMap<String, Object>(Map.of("bootstrap.servers", given[0], "group.id", given[1]));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        for (String kind : List.of("key", "value"))
            settings.put(kind + ".deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings)) {
            consumer.assign(List.of(partition));
            while (seen < count && System.currentTimeMillis() < end)
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(record.offset());
                    seen++;
                }
            if (seen > 0)
                consumer.commitSync();
        }
    }
}
