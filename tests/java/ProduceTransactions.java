import java.io.*;
import java.util.*;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Makes a transaction for each line of stdin: `ID TOPIC:PARTITION:RECORDS,... commit|abort|open`, or `-` for no records.  A topic `@GROUP`
 * stands for an offset that is committed for the group, in partition 0 of topic `t`.  Prints the time before and after each, ms.
 */
public class ProduceTransactions {
    public static void main(String[] arguments) throws Exception {
        Map<String, Producer<byte[], byte[]>> producers = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            Producer<byte[], byte[]> producer = producers.get(words[0]);
            if (producer == null) {
                producer = made(arguments[0], words[0]);
                producers.put(words[0], producer);
            }
            long from = System.currentTimeMillis();
            producer.beginTransaction();
            for (String part : words[1].equals("-") ? new String[0] : words[1].split(","))
                send(producer, part.split(":"));
            producer.flush();
            if (words[2].equals("commit"))
                producer.commitTransaction();
            else if (words[2].equals("abort"))
                producer.abortTransaction();
            System.out.println(from + " " + System.currentTimeMillis());
            System.out.flush();
        }
        Runtime.getRuntime().halt(0); // what is open stays open
    }

    static Producer<byte[], byte[]> made(String bootstrap, String id) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "transactional.id", id, "transaction.timeout.ms", "600000");
        Producer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }

    static void send(Producer<byte[], byte[]> producer, String[] part) throws Exception {
        int number = Integer.parseInt(part[1]), count = Integer.parseInt(part[2]);
        if (part[0].startsWith("@")) {
            Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(new TopicPartition("t", number), new OffsetAndMetadata(count));
            producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(part[0].substring(1)));
            return;
        }
        for (int i = 0; i < count; i++)
            producer.send(new ProducerRecord<>(part[0], number, null, new byte[] {1, 2, 3}));
    }
}
