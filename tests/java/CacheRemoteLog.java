import java.lang.reflect.*;
import java.util.*;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.*;

/**
 * Kafka's cache of remote segments, its check of lineages, and the partitioner of `__remote_log_metadata`.
 *
 *   cache INITIALIZED EPOCH:OFFSET,… VALUE…   the values of records, in base64, into a fresh cache.  The first string of the answer is the
 *                                             class of the exception of each, or "-"; the second the cache's content; the third the
 *                                             segment that is found for each epoch and offset
 *   within LOG_END EPOCH=START,… VALUE        whether a segment is within the lineage
 *   partition COUNT TOPIC_ID:NUMBER…          the metadata partitions
 */
public class CacheRemoteLog extends RequestLoop {
    private final RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();

    public static void main(String[] given) throws Exception {
        new CacheRemoteLog().run();
    }

    Answer answer(String[] request) throws Exception {
        String[] rest = Arrays.copyOfRange(request, 1, request.length);
        return switch (request[0]) {
            case "cache" -> cache(rest);
            case "within" -> within(rest);
            default -> partition(rest);
        };
    }

    private static Object call(Object whose, String name, Class<?>[] types, Object... arguments) throws Exception {
        Method method = (whose instanceof Class<?> type ? type : whose.getClass()).getDeclaredMethod(name, types);
        method.setAccessible(true);
        return method.invoke(whose instanceof Class<?> ? null : whose, arguments);
    }

    private static Object field(Object whose, String name) throws Exception {
        Field field = whose.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(whose);
    }

    private Answer cache(String[] request) throws Exception {
        RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
        if (request[0].equals("true"))
            call(cache, "markInitialized", new Class<?>[0]);
        StringBuilder outcomes = new StringBuilder();
        for (int i = 2; i < request.length; i++)
            outcomes.append(taken(cache, request[i])).append('\n');
        StringBuilder found = new StringBuilder();
        for (String query : request[1].isEmpty() ? new String[0] : request[1].split(",")) {
            String[] numbers = query.split(":");
            Optional<?> segment = (Optional<?>) call(cache, "remoteLogSegmentMetadata", new Class<?>[] {int.class, long.class},
                Integer.parseInt(numbers[0]), Long.parseLong(numbers[1]));
            found.append(segment.map(one -> ((RemoteLogSegmentMetadata) one).remoteLogSegmentId().id().toString()).orElse("-")).append('\n');
        }
        return new Answer(0, outcomes.toString(), content(cache), found.toString());
    }

    private String taken(RemoteLogMetadataCache cache, String value) throws Exception {
        try {
            RemoteLogMetadata event = serde.deserialize(Base64.getDecoder().decode(value));
            if (event instanceof RemoteLogSegmentMetadata segment)
                call(cache, "addCopyInProgressSegment", new Class<?>[] {RemoteLogSegmentMetadata.class}, segment);
            else if (event instanceof RemoteLogSegmentMetadataUpdate update)
                call(cache, "updateRemoteLogSegmentMetadata", new Class<?>[] {RemoteLogSegmentMetadataUpdate.class}, update);
            else
                return event.getClass().getSimpleName();
            return "-";
        } catch (InvocationTargetException wrapper) {
            return wrapper.getCause().getClass().getSimpleName();
        } catch (Exception refused) {
            return refused.getClass().getSimpleName();
        }
    }

    private String content(RemoteLogMetadataCache cache) throws Exception {
        TreeSet<String> lines = new TreeSet<>();
        Iterator<?> segments = (Iterator<?>) call(cache, "listAllRemoteLogSegments", new Class<?>[0]);
        while (segments.hasNext())
            lines.add("segment " + segment((RemoteLogSegmentMetadata) segments.next()));
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) field(cache, "leaderEpochEntries")).entrySet()) {
            Object state = entry.getValue();
            TreeSet<String> unreferenced = new TreeSet<>();
            for (Object id : (Set<?>) field(state, "unreferencedSegmentIds"))
                unreferenced.add(((RemoteLogSegmentId) id).id().toString());
            StringBuilder offsets = new StringBuilder();
            for (Map.Entry<?, ?> one : ((Map<?, ?>) field(state, "offsetToId")).entrySet())
                offsets.append(one.getKey()).append('=').append(((RemoteLogSegmentId) one.getValue()).id()).append(' ');
            lines.add("epoch " + entry.getKey() + " highest " + field(state, "highestLogOffset") + " offsets " + offsets + "loose " + String.join(" ", unreferenced));
        }
        return String.join("\n", lines);
    }

    private static String segment(RemoteLogSegmentMetadata one) {
        String custom = one.customMetadata().map(data -> HexFormat.of().formatHex(data.value())).orElse("null");
        return one.remoteLogSegmentId().id() + " " + one.state() + " " + one.startOffset() + " " + one.endOffset() + " " + one.segmentSizeInBytes() + " "
            + one.maxTimestampMs() + " " + one.brokerId() + " " + one.eventTimestampMs() + " " + one.isTxnIdxEmpty() + " " + custom + " " + one.segmentLeaderEpochs();
    }

    private Answer within(String[] request) throws Exception {
        TreeMap<Integer, Long> epochs = new TreeMap<>();
        for (String entry : request[1].split(","))
            epochs.put(Integer.parseInt(entry.split("=")[0]), Long.parseLong(entry.split("=")[1]));
        Class<?> manager = Class.forName("org.apache.kafka.server.log.remote.storage.RemoteLogManager");
        Object filtered = call(manager, "buildFilteredLeaderEpochMap", new Class<?>[] {NavigableMap.class}, epochs);
        Object segment = serde.deserialize(Base64.getDecoder().decode(request[2]));
        Object is = call(manager, "isRemoteSegmentWithinLeaderEpochs", new Class<?>[] {RemoteLogSegmentMetadata.class, long.class, NavigableMap.class},
            segment, Long.parseLong(request[0]), filtered);
        return new Answer((Boolean) is ? 1 : 0, "", "", "");
    }

    private Answer partition(String[] request) {
        RemoteLogMetadataTopicPartitioner partitioner = new RemoteLogMetadataTopicPartitioner(Integer.parseInt(request[0]));
        StringBuilder found = new StringBuilder();
        for (int i = 1; i < request.length; i++) {
            String[] whose = request[i].split(":");
            TopicPartition partition = new TopicPartition("t", Integer.parseInt(whose[1]));
            found.append(partitioner.metadataPartition(new TopicIdPartition(Uuid.fromString(whose[0]), partition))).append(' ');
        }
        return new Answer(0, found.toString(), "", "");
    }
}
