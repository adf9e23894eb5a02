import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Supplier;
import kafka.log.LogManager;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a broker makes of a log dir between its start and a clean stop, many times in one JVM: the broker's own LogManager,
 * without network, quorum or clients.
 *
 * A request on stdin is a count and so many strings: the log dir, the time in ms (empty: the clock's), then NAME=VALUE for
 * broker properties, and cut:PARTITION=OFFSET for what is cut before the stop, as a follower cuts it.  The answer on stdout is three strings: "ok", "offline" (a broker would have gone on without the
 * directory) or "died"; the class of the exception; its message.  Numbers are big-endian int32, a string is its length in
 * bytes and UTF-8.
 */
public class LoadMany {
    static final String CUT = "cut:";

    /** Work that is due at once is done at once, so that nothing depends on threads; what is due later is never done. */
    static class NothingLater implements Scheduler {
        public void startup() { }

        public void shutdown() { }

        public void resizeThreadPool(int size) { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (delayMs <= 0 && periodMs < 0)
                task.run();
            return new Never();
        }
    }

    static class Never extends FutureTask<Void> implements ScheduledFuture<Void> {
        Never() {
            super(() -> null);
        }

        public long getDelay(TimeUnit unit) {
            return Long.MAX_VALUE;
        }

        public int compareTo(Delayed other) {
            return 0;
        }
    }

    static class Stopped implements Time {
        final long nowMs;

        Stopped(long nowMs) {
            this.nowMs = nowMs;
        }

        public long milliseconds() {
            return nowMs;
        }

        public long nanoseconds() {
            return System.nanoTime();
        }

        public void sleep(long ms) {
            Time.SYSTEM.sleep(ms);
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) throws InterruptedException {
            Time.SYSTEM.waitObject(object, condition, deadlineMs);
        }
    }

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
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        System.setOut(System.err);
        while (true) {
            int count;
            try {
                count = requests.readInt();
            } catch (EOFException end) {
                return;
            }
            String[] texts = new String[count];
            for (int i = 0; i < count; i++)
                texts[i] = new String(requests.readNBytes(requests.readInt()), StandardCharsets.UTF_8);
            String[] answer;
            try {
                answer = load(texts);
            } catch (Throwable problem) {
                answer = new String[] {"died", problem.getClass().getSimpleName(), String.valueOf(problem.getMessage())};
            }
            if (!answer[0].equals("ok"))
                System.gc(); // closes the files and mappings of a start that failed
            answers.writeInt(answer[0].equals("ok") ? 0 : 1);
            for (String text : answer) {
                byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
                answers.writeInt(bytes.length);
                answers.write(bytes);
            }
            answers.flush();
        }
    }

    static KafkaConfig configuration(String[] texts) {
        var properties = new Properties();
        properties.put("process.roles", "broker");
        properties.put("node.id", "1");
        properties.put("controller.quorum.bootstrap.servers", "localhost:1");
        properties.put("controller.listener.names", "CONTROLLER");
        properties.put("log.cleaner.enable", "false");
        properties.put("num.recovery.threads.per.data.dir", "1");
        properties.put("log.dirs", texts[0]);
        for (String property : Arrays.asList(texts).subList(2, texts.length)) {
            if (property.startsWith(CUT))
                continue;
            int equals = property.indexOf('=');
            properties.put(property.substring(0, equals), property.substring(equals + 1));
        }
        return new KafkaConfig(properties, false);
    }

    static String[] load(String[] texts) throws Throwable {
        var failures = new Failures();
        var none = CollectionConverters.asScala(List.<String>of()).toSeq();
        ConfigRepository noTopic = resource -> new Properties();
        Time time = texts[1].isEmpty() ? Time.SYSTEM : new Stopped(Long.parseLong(texts[1]));
        BrokerTopicStats stats = new BrokerTopicStats();
        LogManager manager = LogManager.apply(configuration(texts), none, noTopic, new NothingLater(), time, stats, failures);
        boolean good = false;
        try {
            manager.startup(CollectionConverters.asScala(Set.<String>of()), LoadMany::stray);
            cut(manager, texts);
            good = !failures.hasOfflineLogDir(texts[0]);
            if (good)
                manager.shutdown(-1);
            else
                return new String[] {"offline", failures.error, failures.message};
            // What fails in a stop is only logged; then there is no marker.
            boolean clean = Files.exists(Path.of(texts[0], ".kafka_cleanshutdown"));
            return new String[] {clean ? "ok" : "unclean stop", "", ""};
        } finally {
            // A broker that fails here is halted, so nothing is closed in order: only its locks go.
            if (!good)
                abandon(manager);
            stats.close();
            var metrics = KafkaYammerMetrics.defaultRegistry();
            List.copyOf(metrics.allMetrics().keySet()).forEach(metrics::removeMetric);
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

    /** What still loads other partitions would go on writing after the answer. */
    static void abandon(LogManager manager) throws Exception {
        for (Thread thread : Thread.getAllStackTraces().keySet())
            if (thread.getName().startsWith("log-recovery-"))
                thread.join();
        for (var lock : CollectionConverters.asJava(manager.dirLocks()))
            lock.destroy();
    }

    /** All topics are known and belong here; one without an identity is nobody's. */
    static Object stray(UnifiedLog log) {
        return log.topicId().isEmpty();
    }
}
