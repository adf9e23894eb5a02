import java.io.*;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends a record for each line of stdin, a key in hex, to a topic of a broker; prints the partition of each as
 * acknowledged.  Whatever a Java producer does by default.
 */
public class ProduceKeys {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", arguments[0], "linger.ms", "20");
        try (Producer<byte[], byte[]> producer =
                 new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line; (line = lines.readLine()) != null; )
                sent.add(producer.send(new ProducerRecord<>(arguments[1], HexFormat.of().parseHex(line), new byte[] {1})));
            for (Future<RecordMetadata> one : sent)
                System.out.println(one.get().partition());
        }
    }
}
