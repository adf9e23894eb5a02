import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.SimpleRate;

/**
 * Kafka's rate of a replication quota, at its default windows.
 *
 * A request on stdin is a word and numbers: `new`; `record TIME BYTES`; `measure TIME`, which answers with the bytes a
 * second.
 */
public class ReplicationRate {
    public static void main(String[] args) {
        MetricConfig config = new MetricConfig().timeWindow(1, TimeUnit.SECONDS).samples(11);
        SimpleRate rate = new SimpleRate();
        StringBuilder answers = new StringBuilder();
        Scanner input = new Scanner(System.in);
        while (input.hasNext()) {
            switch (input.next()) {
                case "new" -> rate = new SimpleRate();
                case "record" -> {
                    long time = input.nextLong();
                    rate.record(config, input.nextLong(), time);
                }
                default -> answers.append(rate.measure(config, input.nextLong())).append('\n');
            }
        }
        System.out.print(answers);
    }
}
