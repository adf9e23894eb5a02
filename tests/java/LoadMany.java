import java.io.*;
import java.nio.file.*;
import java.util.*;
import kafka.log.LogManager;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a broker makes of a log dir between its start and a clean stop, many times in one JVM: the broker's own LogManager.
 *
 * A request is the log dir, the time in ms (empty: the clock's), then NAME=VALUE for broker properties, and
 * cut:PARTITION=OFFSET for what is cut before the stop, as a follower cuts it.  The answer is 0 for "ok", and "ok",
 * "offline" (a broker would have gone on without the directory), "unclean stop" or "died"; the class of the exception; its
 * message.
 */
public class LoadMany extends RequestLoop {
    static final String CUT = "cut:";

    static class Failures extends LogDirFailureChannel {
        volatile String error = "", message = "";

        Failures() {
            super(1);
        }

        public void maybeAddOfflineLogDir(String logDir, String doing, IOException problem) {
            error = problem.getClass().getSimpleName();
            message = String.valueOf(problem.getMessage());
            super.maybeAddOfflineLogDir(logDir, doing, problem);
        }
    }

    public static void main(String[] given) throws Exception {
        new LoadMany().run();
    }

    Answer answer(String[] texts) {
        Answer answer;
        try {
            answer = load(texts);
        } catch (Throwable problem) {
            answer = new Answer(1, "died", problem.getClass().getSimpleName(), String.valueOf(problem.getMessage()));
        }
        if (answer.code() != 0)
            System.gc(); // closes the files and mappings of a start that failed
        return answer;
    }

    static KafkaConfig configuration(String[] texts) {
        var properties = new Properties();
        for (String property : Arrays.asList(texts).subList(2, texts.length)) {
            if (property.startsWith(CUT))
                continue;
            int equals = property.indexOf('=');
            properties.put(property.substring(0, equals), property.substring(equals + 1));
        }
        return new KafkaConfig(StillBroker.complete(properties, texts[0]), false);
    }

    static Answer load(String[] texts) throws Throwable {
        var failures = new Failures();
        var none = CollectionConverters.asScala(List.<String>of()).toSeq();
        ConfigRepository noTopic = resource -> new Properties();
        Time time = texts[1].isEmpty() ? Time.SYSTEM : new StillBroker.Clock(Long.parseLong(texts[1]));
        BrokerTopicStats stats = new BrokerTopicStats();
        LogManager manager = LogManager.apply(
            configuration(texts), none, noTopic, new StillBroker.Tasks(), time, stats, failures);
        boolean good = false;
        try {
            manager.startup(CollectionConverters.asScala(Set.<String>of()), LoadMany::stray);
            cut(manager, texts);
            good = !failures.hasOfflineLogDir(texts[0]);
            if (good)
                manager.shutdown(-1);
            else
                return new Answer(1, "offline", failures.error, failures.message);
            // What fails in a stop is only logged; then there is no marker.
            boolean clean = Files.exists(Path.of(texts[0], ".kafka_cleanshutdown"));
            return new Answer(clean ? 0 : 1, clean ? "ok" : "unclean stop", "", "");
        } finally {
            if (!good)
                StillBroker.abandon(manager);
            stats.close();
            StillBroker.forgetMetrics();
        }
    }

    /** As a follower does that learns from its leader where they part. */
    static void cut(LogManager manager, String[] texts) throws IOException {
        for (String text : texts) {
            if (!text.startsWith(CUT))
                continue;
            int equals = text.lastIndexOf('=');
            var partition = UnifiedLog.parseTopicPartitionName(new File(text.substring(CUT.length(), equals)));
            manager.getLog(partition, false).get().truncateTo(Long.parseLong(text.substring(equals + 1)));
        }
    }

    /** All topics are known and belong here; one without an identity is nobody's. */
    static Object stray(UnifiedLog log) {
        return log.topicId().isEmpty();
    }
}
