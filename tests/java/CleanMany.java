import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.lang.management.*;
import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import kafka.log.LogManager;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a broker's cleaner makes of a log dir, many times in one JVM: the broker's own LogManager, LogCleanerManager and
 * Cleaner on a clock that stands still, one step after the other instead of in threads.
 *
 * A request is one string of JSON, {"log_dir", "now_ms", "broker": {property: value}, "topics": {topic:
 * {setting: value}}, "map_bytes", "high_watermarks": "end" or "checkpoint", "steps": [{"do": …}, …]}; the steps are the
 * methods of Visit.  The answer is "ok" or the class of the exception; JSON, what each step had to say; the exception's message.
 */
public class CleanMany extends RequestLoop {
    static final ObjectMapper JSON = new ObjectMapper();
    static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    static final String HIGH_WATERMARKS = "replication-offset-checkpoint";

    /** What files are to go waits for its call, the rest is done at once or never. */
    static class InTurn extends StillBroker.Tasks {
        final Queue<Runnable> deletions = new ConcurrentLinkedQueue<>();

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (!name.startsWith("delete-"))
                return super.schedule(name, task, delayMs, periodMs);
            deletions.add(task);
            return new StillBroker.Never();
        }

        void delete() {
            for (Runnable task = deletions.poll(); task != null; task = deletions.poll())
                task.run();
        }
    }

    public static void main(String[] given) throws Exception {
        new CleanMany().run();
    }

    Answer answer(String[] texts) throws Exception {
        List<Object> said = new ArrayList<>();
        String state = "ok", message = "";
        try {
            visit(JSON.readTree(texts[0]), said);
        } catch (Throwable problem) {
            state = problem.getClass().getSimpleName();
            message = String.valueOf(problem.getMessage());
            System.gc(); // closes the files and mappings of what was not stopped in order
        }
        return new Answer(state.equals("ok") ? 0 : 1, state, JSON.writeValueAsString(said), message);
    }

    static void visit(JsonNode request, List<Object> said) throws Throwable {
        BrokerTopicStats stats = new BrokerTopicStats();
        Visit visit = new Visit(request, stats);
        boolean good = false;
        try {
            visit.start();
            for (JsonNode step : request.get("steps"))
                said.add(visit.step(step));
            good = true;
            visit.stop();
        } finally {
            if (!good)
                StillBroker.abandon(visit.manager);
            stats.close();
            StillBroker.forgetMetrics();
        }
    }

    /** One log dir between a start and a stop. */
    static class Visit {
        final JsonNode request;
        final File logDir;
        final StillBroker.Clock clock;
        final InTurn scheduler = new InTurn();
        final LogDirFailureChannel failures = new LogDirFailureChannel(1);
        final KafkaConfig config;
        final LogManager manager;
        final boolean toTheEnd;
        LogCleanerManager cleaners;
        Cleaner cleaner;

        Visit(JsonNode request, BrokerTopicStats stats) {
            this.request = request;
            logDir = new File(request.get("log_dir").asText()).getAbsoluteFile();
            clock = new StillBroker.Clock(request.get("now_ms").asLong());
            toTheEnd = request.get("high_watermarks").asText().equals("end");
            config = configuration();
            var none = CollectionConverters.asScala(List.<String>of()).toSeq();
            ConfigRepository topics = resource -> properties(request.get("topics").get(resource.name()));
            manager = LogManager.apply(config, none, topics, scheduler, clock, stats, failures);
        }

        KafkaConfig configuration() {
            var properties = properties(request.get("broker"));
            properties.put("log.cleaner.enable", "false"); // no threads: the steps move a cleaner of their own
            return new KafkaConfig(StillBroker.complete(properties, logDir.getPath()), false);
        }

        static Properties properties(JsonNode values) {
            var properties = new Properties();
            if (values != null)
                values.forEachEntry((name, value) -> properties.put(name, value.asText()));
            return properties;
        }

        void start() throws Exception {
            Set<String> topics = new HashSet<>();
            request.get("topics").fieldNames().forEachRemaining(topics::add);
            manager.startup(CollectionConverters.asScala(topics), log -> log.topicId().isEmpty());
            if (failures.hasOfflineLogDir(logDir.getPath()))
                throw new IllegalStateException("a broker would have gone on without " + logDir);
            ConcurrentMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>();
            for (UnifiedLog log : logs())
                logs.put(log.topicPartition(), log);
            cleaners = new LogCleanerManager(List.of(logDir), logs, failures);
            CleanerConfig given = manager.cleanerConfig();
            cleaner = new Cleaner(
                0,
                // A broker refuses to start with less than 1 MiB, a cleaner works with any.
                new SkimpyOffsetMap(request.path("map_bytes").asInt((int) given.dedupeBufferSize), given.hashAlgorithm()),
                given.ioBufferSize / 2,
                given.maxMessageSize,
                given.dedupeBufferLoadFactor,
                new Throttler(Double.MAX_VALUE, 300, "rate", "bytes", clock),
                clock,
                partition -> cleaners.checkCleaningAborted(partition)
            );
            Map<TopicPartition, Long> checkpointed = new OffsetCheckpointFile(new File(logDir, HIGH_WATERMARKS), failures).read();
            for (UnifiedLog log : logs())
                log.updateHighWatermark(toTheEnd ? log.logEndOffset() : checkpointed.getOrDefault(log.topicPartition(), 0L));
        }

        /** A clean stop; high watermarks are checkpointed as the replica manager does it. */
        void stop() throws Exception {
            Map<TopicPartition, Long> reached = new HashMap<>();
            for (UnifiedLog log : logs())
                reached.put(log.topicPartition(), log.highWatermark());
            new OffsetCheckpointFile(new File(logDir, HIGH_WATERMARKS), failures).write(reached);
            manager.shutdown(-1);
            scheduler.delete();
            // What fails in a stop is only logged; then there is no marker.
            if (!Files.exists(logDir.toPath().resolve(".kafka_cleanshutdown")))
                throw new IllegalStateException("the stop was not clean");
        }

        Collection<UnifiedLog> logs() {
            return CollectionConverters.asJavaCollection(manager.allLogs());
        }

        UnifiedLog log(JsonNode step) throws IOException {
            return manager.getLog(UnifiedLog.parseTopicPartitionName(new File(step.get("partition").asText())), false).get();
        }

        /** One step, and what it has to say. */
        Object step(JsonNode step) throws Exception {
            Object said = switch (step.get("do").asText()) {
                case "clock" -> clock.nowMs = step.get("now_ms").asLong();
                case "append" -> append(step);
                case "roll" -> log(step).roll().baseOffset();
                case "watermark" -> log(step).updateHighWatermark(step.get("offset").asLong());
                case "log start" -> log(step).maybeIncrementLogStartOffset(
                    step.get("offset").asLong(), LogStartOffsetIncrementReason.ClientRecordDeletion);
                case "select" -> select();
                case "rounds" -> rounds(step);
                case "force" -> clean(new LogToClean(log(step), step.get("first_dirty").asLong(),
                    step.get("first_uncleanable").asLong(), true), false);
                case "retain" -> retain();
                case "delete due" -> deleteDue();
                default -> throw new IllegalArgumentException(step.toString());
            };
            scheduler.delete();
            return said;
        }

        /** Appends batches with the offsets, times and epochs they have, as from a leader; their segment is of this time. */
        long append(JsonNode step) throws IOException {
            UnifiedLog log = log(step);
            byte[] bytes = new byte[step.get("size").asInt()];
            try (RandomAccessFile file = new RandomAccessFile(step.get("file").asText(), "r")) {
                file.seek(step.get("position").asLong());
                file.readFully(bytes);
            }
            log.appendAsFollower(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)), Integer.MAX_VALUE);
            log.activeSegment().setLastModified(clock.nowMs);
            if (toTheEnd)
                log.updateHighWatermark(log.logEndOffset());
            return log.logEndOffset();
        }

        /** What a broker's cleaner thread does each time: the filthiest log, then retention; until there is nothing left. */
        List<Object> rounds(JsonNode step) throws Exception {
            int most = step.get("most").asInt();
            JsonNode only = step.get("partition");
            List<TopicPartition> paused = new ArrayList<>();
            if (only != null)
                for (UnifiedLog log : logs())
                    if (!log.dir().getName().equals(only.asText()))
                        paused.add(log.topicPartition());
            paused.forEach(cleaners::abortAndPauseCleaning);
            List<Object> found = new ArrayList<>();
            while (found.size() < most) {
                Optional<LogToClean> filthiest = cleaners.grabFilthiestCompactedLog(clock, new PreCleanStats());
                if (filthiest.isPresent())
                    found.add(clean(filthiest.get(), true));
                if (step.get("retention").asBoolean())
                    retain();
                scheduler.delete();
                if (filthiest.isEmpty())
                    break;
            }
            cleaners.resumeCleaning(new HashSet<>(paused));
            return found;
        }

        /** One round.  A log that fails is not tried again in this visit, as with a broker. */
        Map<String, Object> clean(LogToClean log, boolean grabbed) throws Exception {
            Map<String, Object> said = about(log);
            TopicPartition partition = log.topicPartition();
            File parent = log.log().parentDirFile();
            long end = log.firstDirtyOffset(), began = THREADS.getCurrentThreadCpuTime();
            try {
                var done = cleaner.clean(log);
                said.put("cpu_ns", THREADS.getCurrentThreadCpuTime() - began);
                end = done.getKey();
                report(said, end, done.getValue());
            } catch (Exception problem) {
                said.put("error", problem.getClass().getSimpleName() + ": " + problem.getMessage());
                if (!(problem instanceof LogCleaningAbortedException))
                    cleaners.markPartitionUncleanable(log.log().parentDir(), partition);
            }
            if (grabbed)
                cleaners.doneCleaning(partition, parent, end);
            else
                cleaners.updateCheckpoints(parent, Optional.of(Map.entry(partition, end)), Optional.empty());
            return said;
        }

        void report(Map<String, Object> said, long end, CleanerStats stats) throws Exception {
            said.put("next_dirty", end);
            said.put("map_messages", stats.mapMessagesRead());
            said.put("map_bytes", of(stats, "mapBytesRead"));
            said.put("map_entries", cleaner.offsetMap().size());
            said.put("messages_read", stats.messagesRead());
            said.put("messages_written", stats.messagesWritten());
            said.put("bytes_read", stats.bytesRead());
            said.put("bytes_written", stats.bytesWritten());
            said.put("invalid_messages", stats.invalidMessagesRead());
            said.put("buffer_utilization", stats.bufferUtilization());
        }

        /** As the cleaner thread does for compacted logs: by age and size where the policy says so, and below the log start. */
        int retain() throws IOException {
            int segments = 0;
            var deletable = cleaners.deletableLogs();
            try {
                for (UnifiedLog log : deletable.values())
                    segments += log.deleteOldSegments();
            } finally {
                cleaners.doneDeleting(List.copyOf(deletable.keySet()));
            }
            return segments;
        }

        /** As the broker's check does for all logs, compacted or not; says the base offsets of what is left of each. */
        Map<String, Object> deleteDue() throws IOException {
            Map<String, Object> found = new TreeMap<>();
            for (UnifiedLog log : logs()) {
                log.deleteOldSegments();
                List<Long> bases = new ArrayList<>();
                for (LogSegment segment : log.logSegments())
                    bases.add(segment.baseOffset());
                found.put(log.dir().getName(), bases);
            }
            return found;
        }

        /** What would be decided about each compacted log now; nothing is written. */
        List<Object> select() throws Exception {
            Map<TopicPartition, Long> checkpoints = cleaners.allCleanerCheckpoints();
            List<Object> found = new ArrayList<>();
            for (UnifiedLog log : logs()) {
                if (!log.config().compact)
                    continue;
                Object bounds = call("cleanableOffsets", new Class<?>[] {UnifiedLog.class, Optional.class, long.class}, log,
                    Optional.ofNullable(checkpoints.get(log.topicPartition())), clock.nowMs);
                long firstDirty = (long) of(bounds, "firstDirtyOffset");
                long delayMs = (long) call("maxCompactionDelay", new Class<?>[] {UnifiedLog.class, long.class, long.class}, log,
                    firstDirty, clock.nowMs);
                long bound = (long) of(bounds, "firstUncleanableDirtyOffset");
                LogToClean candidate = new LogToClean(log, firstDirty, bound, delayMs > 0);
                Map<String, Object> said = about(candidate);
                said.put("bound", bound);
                said.put("checkpoint_rewritten", of(bounds, "forceUpdateCheckpoint"));
                said.put("delay_ms", delayMs);
                said.put("eligible", candidate.totalBytes() > 0 && (delayMs > 0 && candidate.cleanableBytes() > 0
                    || candidate.cleanableRatio() > log.config().minCleanableRatio));
                said.put("log_start", log.logStartOffset());
                said.put("last_stable", log.lastStableOffset());
                said.put("high_watermark", log.highWatermark());
                said.put("log_end", log.logEndOffset());
                said.put("segments", segments(log));
                said.put("producers", producers(log));
                found.add(said);
            }
            return found;
        }

        static Map<String, Object> about(LogToClean log) {
            Map<String, Object> said = new LinkedHashMap<>();
            said.put("partition", log.log().dir().getName());
            said.put("first_dirty", log.firstDirtyOffset());
            said.put("first_uncleanable", log.firstUncleanableOffset());
            said.put("clean_bytes", log.cleanBytes());
            said.put("cleanable_bytes", log.cleanableBytes());
            said.put("ratio", log.totalBytes() > 0 ? log.cleanableRatio() : 0.0);
            return said;
        }

        static List<Object> segments(UnifiedLog log) throws IOException {
            List<Object> found = new ArrayList<>();
            for (LogSegment segment : log.logSegments())
                found.add(List.of(segment.baseOffset(), segment.size(), segment.largestTimestamp()));
            return found;
        }

        static List<Object> producers(UnifiedLog log) {
            List<Object> found = new ArrayList<>();
            log.lastRecordsOfActiveProducers().forEach((id, last) ->
                found.add(List.of(id, last.lastDataOffset().orElse(-1), (int) last.producerEpoch())));
            return found;
        }

        /** LogCleanerManager keeps to itself what it decides by. */
        static Object call(String name, Class<?>[] types, Object... given) throws Exception {
            Method method = LogCleanerManager.class.getDeclaredMethod(name, types);
            method.setAccessible(true);
            return method.invoke(null, given);
        }

        static Object of(Object owner, String field) throws Exception {
            Field found = owner.getClass().getDeclaredField(field);
            found.setAccessible(true);
            return found.get(owner);
        }
    }
}
