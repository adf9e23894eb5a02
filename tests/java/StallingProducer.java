import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Utils;

/**
 * Writes steadily to several topics, a fifth of the records to those whose names begin with "slow".  Each value names the
 * topic and the partition that it is meant for, the one that murmur2 gives its key.  Arguments: seconds, seed, partitions,
 * topics (with commas), then settings of the producer as name=value.  Prints how many were acknowledged, and how many not.
 */
public class StallingProducer {
    private static final int RATE = 400, VALUE_BYTES = 9000;

    public static void main(String[] arguments) throws Exception {
        long seconds = Long.parseLong(arguments[0]);
        Random random = new Random(Long.parseLong(arguments[1]));
        int partitions = Integer.parseInt(arguments[2]);
        List<String> slow = new ArrayList<>(), fast = new ArrayList<>();
        for (String topic : arguments[3].split(","))
            (topic.startsWith("slow") ? slow : fast).add(topic);
        Map<String, Object> config = new HashMap<>();
        for (String setting : Arrays.asList(arguments).subList(4, arguments.length))
            config.put(setting.substring(0, setting.indexOf('=')), setting.substring(setting.indexOf('=') + 1));
        AtomicLong acknowledged = new AtomicLong(), failed = new AtomicLong();
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        long began = System.nanoTime(), end = began + seconds * 1_000_000_000L;
        for (long n = 0; System.nanoTime() < end; n++) {
            List<String> some = random.nextDouble() < 0.2 ? slow : fast;
            String topic = some.get(random.nextInt(some.size()));
            byte[] key = String.format("k%06d", random.nextInt(100000)).getBytes(StandardCharsets.UTF_8);
            int partition = Utils.toPositive(Utils.murmur2(key)) % partitions;
            StringBuilder value = new StringBuilder(topic + " " + partition + " " + n + " ");
            while (value.length() < VALUE_BYTES)
                value.append((char) ('a' + random.nextInt(26)));
            byte[] content = value.toString().getBytes(StandardCharsets.UTF_8);
            try {
                producer.send(new ProducerRecord<>(topic, partition, key, content),
                    (metadata, error) -> (error == null ? acknowledged : failed).incrementAndGet());
            } catch (RuntimeException error) {
                failed.incrementAndGet();  // no buffer is free: the link stalls
            }
            long ahead = began + n * 1_000_000_000L / RATE - System.nanoTime();
            if (ahead > 2_000_000)
                Thread.sleep(ahead / 1_000_000);
        }
        producer.close(Duration.ofSeconds(15));
        System.out.println(acknowledged + " " + failed);
    }
}
