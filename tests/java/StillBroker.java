import java.util.*;
import java.util.concurrent.*;
import java.util.function.Supplier;
import kafka.log.LogManager;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import org.apache.kafka.server.util.Scheduler;
import scala.jdk.javaapi.CollectionConverters;

/** What a LogManager needs of a broker, without threads, network, quorum or clients. */
class StillBroker {
    /** Work that is due at once is done at once, so that nothing depends on threads; what is due later is never done. */
    static class Tasks implements Scheduler {
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

    /** A clock that stands still until it is moved. */
    static class Clock implements Time {
        volatile long nowMs;

        Clock(long nowMs) {
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

    /** Complete the properties of a broker with the log dir, and with what a configuration may not lack. */
    static Properties complete(Properties properties, String logDir) {
        properties.putIfAbsent("process.roles", "broker");
        properties.putIfAbsent("node.id", "1");
        properties.putIfAbsent("controller.quorum.bootstrap.servers", "localhost:1");
        properties.putIfAbsent("controller.listener.names", "CONTROLLER");
        properties.putIfAbsent("num.recovery.threads.per.data.dir", "1");
        properties.putIfAbsent("log.cleaner.enable", "false");
        properties.put("log.dirs", logDir);
        return properties;
    }

    /** A broker that fails at its start is halted, so nothing is closed in order: only its locks go. */
    static void abandon(LogManager manager) throws Exception {
        // What still loads other partitions would go on writing after the answer.
        for (Thread thread : Thread.getAllStackTraces().keySet())
            if (thread.getName().startsWith("log-recovery-"))
                thread.join();
        for (var lock : CollectionConverters.asJava(manager.dirLocks()))
            lock.destroy();
    }

    static void forgetMetrics() {
        var metrics = KafkaYammerMetrics.defaultRegistry();
        List.copyOf(metrics.allMetrics().keySet()).forEach(metrics::removeMetric);
    }
}
