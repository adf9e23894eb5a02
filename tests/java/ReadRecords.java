import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints what a Java consumer is handed of topics, from their first records to the ends that it is told of: a line each with
 * topic, partition, offset, timestamp, timestamp type, key, value, and name and value of each header; bytes in base64, null as -.
 */
public class ReadRecords {
    public static void main(String[] arguments) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", arguments[0], "isolation.level", arguments[1], "enable.auto.commit", "false");
        long until = System.nanoTime() + 60_000_000_000L;
        StringBuilder out = new StringBuilder();
        try (Consumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String topic : Arrays.copyOfRange(arguments, 2, arguments.length))
                consumer.partitionsFor(topic).forEach(one -> partitions.add(new TopicPartition(topic, one.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                if (System.nanoTime() > until) throw new IllegalStateException("the ends do not come");
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(200))) print(one, out);
            }
        }
        System.out.print(out);
    }

    private static void print(ConsumerRecord<byte[], byte[]> one, StringBuilder out) {
        out.append(one.topic()).append(' ').append(one.partition()).append(' ').append(one.offset()).append(' ')
            .append(one.timestamp()).append(' ').append(one.timestampType().name);
        List<byte[]> parts = new ArrayList<>(Arrays.asList(one.key(), one.value()));
        for (Header header : one.headers()) {
            parts.add(header.key().getBytes(StandardCharsets.UTF_8));
            parts.add(header.value());
        }
        for (byte[] part : parts)
            out.append(' ').append(part == null ? "-" : "=" + Base64.getEncoder().encodeToString(part));
        out.append('\n');
    }
}
