import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.image.*;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.metadata.*;
import org.apache.kafka.raft.*;
import org.apache.kafka.server.common.*;

/**
 * What Kafka's own loader makes of a metadata log, as lines of text.
 *
 * A request on stdin is a line with the log's directory; the answer is a line for each thing, sorted, then an empty line.
 */
public class ReadMetadata {
    static final MetadataRecordSerde SERDE = MetadataRecordSerde.INSTANCE;
    static MetadataImage image;

    public static void main(String[] given) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        for (String line; (line = requests.readLine()) != null;) {
            image = MetadataImage.EMPTY;
            load(new File(line));
            for (String said : lines()) answers.println(said);
            answers.println();
        }
        answers.flush();
    }

    static void load(File directory) throws IOException {
        TreeSet<String> names = new TreeSet<>(List.of(directory.list()));
        String newest = null;
        for (String name : names) if (name.endsWith(".checkpoint") && name.length() == 42) newest = name;
        long start = 0;
        if (newest != null) {
            start = Long.parseLong(newest.substring(0, 20));
            MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
            for (RecordBatch batch : batches(new File(directory, newest)))
                for (ApiMessageAndVersion each : records(batch)) delta.replay(each.message());
            delta.finishSnapshot();
            image = delta.apply(new MetadataProvenance(start - 1, 1, 0, true));
        }
        MetadataBatchLoader loader = new MetadataBatchLoader(new LogContext(), Time.SYSTEM, (message, cause) -> {
            return new RuntimeException(message, cause);
        }, (delta, loaded, manifest) -> image = loaded, SupportedConfigChecker.TRUE);
        loader.resetToImage(image);
        for (String name : names)
            if (name.endsWith(".log"))
                for (RecordBatch batch : batches(new File(directory, name)))
                    if (batch.baseOffset() >= start && !batch.isControlBatch()) {
                        Batch<ApiMessageAndVersion> loaded =
                            Batch.data(batch.baseOffset(), batch.partitionLeaderEpoch(), 0, batch.sizeInBytes(), records(batch));
                        loader.loadBatch(loaded, LeaderAndEpoch.UNKNOWN);
                        loader.maybeFlushBatches(LeaderAndEpoch.UNKNOWN, true);
                    }
    }

    static Iterable<? extends RecordBatch> batches(File file) throws IOException {
        return FileRecords.open(file, false).batches();
    }

    static List<ApiMessageAndVersion> records(RecordBatch batch) {
        List<ApiMessageAndVersion> found = new ArrayList<>();
        if (!batch.isControlBatch())
            for (org.apache.kafka.common.record.internal.Record each : batch)
                found.add(SERDE.read(new ByteBufferAccessor(each.value()), each.valueSize()));
        return found;
    }

    static SortedSet<String> lines() {
        SortedSet<String> lines = new TreeSet<>();
        image.topics().topicsByName().forEach((name, topic) -> {
            lines.add("topic " + name + " " + topic.id());
            topic.partitions().forEach((number, p) -> lines.add(String.join(" ", "partition", topic.id().toString(),
                number.toString(), Arrays.toString(p.replicas), Arrays.toString(p.isr), "" + p.leader, "" + p.leaderEpoch,
                "" + p.partitionEpoch, Arrays.toString(p.elr), Arrays.toString(p.lastKnownElr), Arrays.toString(p.addingReplicas),
                Arrays.toString(p.removingReplicas), Arrays.toString(p.directories), "" + p.leaderRecoveryState)));
        });
        image.configs().resourceData().forEach((resource, data) -> data.toMap().forEach((name, value) ->
            lines.add("config " + resource.type().id() + " " + resource.name() + " " + name + "=" + value)));
        image.features().finalizedVersions().forEach((name, level) -> lines.add("feature " + name + " " + level));
        image.features().metadataVersion().ifPresent(v -> lines.add("feature metadata.version " + v.featureLevel()));
        image.cluster().brokers().forEach((id, b) ->
            lines.add("broker " + id + " " + b.epoch() + " " + b.incarnationId() + " " + b.fenced() + " " + b.directories()
                + " " + b.inControlledShutdown() + " " + b.rack() + " " + (b.cordonedDirectories() == null ? List.of() : b.cordonedDirectories()) + " " + listeners(b.listeners())));
        image.cluster().controllers().forEach((id, c) ->
            lines.add("controller " + id + " " + c.incarnationId() + " " + listeners(c.listeners())));
        image.clientQuotas().entities().forEach((entity, quota) -> quota.quotas().forEach((key, value) ->
            lines.add("quota " + new TreeMap<>(entity.entries()) + " " + key + "=" + value)));
        image.scram().mechanisms().forEach((mechanism, users) -> users.forEach((user, data) ->
            lines.add("scram " + user + " " + mechanism.mechanismName() + " " + data.iterations())));
        image.acls().acls().forEach((id, a) -> lines.add(String.join(" ", "acl", id.toString(), a.resourceType().name(),
            a.resourceName(), a.patternType().name(), a.principal(), a.host(), a.operation().name(), a.permissionType().name())));
        lines.add("reserved " + DirectoryId.MIGRATING + " " + DirectoryId.UNASSIGNED + " " + DirectoryId.LOST);
        lines.add("producers " + image.producerIds().nextProducerId());
        lines.add("tokens " + image.delegationTokens().tokens().size());
        return lines;
    }

    static SortedSet<String> listeners(Map<String, org.apache.kafka.common.Endpoint> found) {
        SortedSet<String> lines = new TreeSet<>();
        found.forEach((name, one) -> lines.add(name + "://" + one.host() + ":" + one.port()));
        return lines;
    }
}
