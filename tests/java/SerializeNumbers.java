import java.io.*;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.serialization.*;

/**
 * For each line of stdin (int32 or int64, a number, how many partitions) the key that Kafka's serializer makes of the
 * number, in hex, and the partition that Kafka's producer puts that key into.
 */
public class SerializeNumbers {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            byte[] key = words[0].equals("int32")
                ? new IntegerSerializer().serialize("topic", Integer.valueOf(words[1]))
                : new LongSerializer().serialize("topic", Long.valueOf(words[1]));
            int partition = BuiltInPartitioner.partitionForKey(key, Integer.parseInt(words[2]));
            System.out.println(HexFormat.of().formatHex(key) + " " + partition);
        }
    }
}
