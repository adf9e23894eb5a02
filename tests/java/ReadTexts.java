import java.io.*;
import java.lang.reflect.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.server.common.CheckpointFile;
import org.apache.kafka.snapshot.Snapshots;
import org.apache.kafka.storage.internals.checkpoint.*;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.*;

/**
 * What Kafka's own readers make of names and text files: ReadTexts FOLDER, a folder to write to.
 *
 * A request on stdin is a line: a kind, a blank, the content in base64.  The answer on stdout is a line: "+" and what was
 * read, in base64, or "-" and the name of the exception.
 */
public class ReadTexts {
    static Path folder;

    public static void main(String[] given) throws Exception {
        folder = Files.createDirectories(Path.of(given[0]).resolve("cache-0"));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.US_ASCII);
        System.setOut(System.err);
        for (String line; (line = requests.readLine()) != null;) {
            int blank = line.indexOf(' ');
            try {
                String found = read(line.substring(0, blank), Base64.getDecoder().decode(line.substring(blank + 1)));
                answers.println("+" + Base64.getEncoder().encodeToString(found.getBytes(StandardCharsets.UTF_8)));
            } catch (Throwable refused) {
                answers.println("-" + refused.getClass().getSimpleName());
            }
        }
        answers.flush();
    }

    static String read(String kind, byte[] content) throws Throwable {
        String text = new String(content, StandardCharsets.UTF_8);
        return switch (kind) {
            case "directory" -> {
                var found = LocalLog.parseTopicPartitionName(new File("/" + text));
                yield found.topic() + "|" + found.partition();
            }
            case "file" -> "" + LogFileUtils.offsetFromFileName(text);
            case "kraft" -> {
                var found = Snapshots.parse(Path.of(text)).get();
                yield found.snapshotId().offset() + "|" + found.snapshotId().epoch() + "|" + found.partial() + "|" + found.deleted();
            }
            case "uuid" -> "" + Uuid.fromString(text);
            case "int" -> "" + Integer.parseInt(text);
            case "offsets" -> offsets(content);
            case "epochs" -> epochs(content);
            case "metadata" -> metadata(content);
            case "properties" -> properties(content);
            case "meta" -> meta(content);
            default -> throw new IllegalArgumentException(kind);
        };
    }

    static String offsets(byte[] content) throws Throwable {
        var made = Class.forName(OffsetCheckpointFile.class.getName() + "$Formatter").getDeclaredConstructor();
        made.setAccessible(true);
        var entries = new StringJoiner(";");
        for (Object entry : checkpoint(content, (CheckpointFile.EntryFormatter<?>) made.newInstance())) {
            Method partition = entry.getClass().getDeclaredMethod("tp"), offset = entry.getClass().getDeclaredMethod("offset");
            partition.setAccessible(true);
            offset.setAccessible(true);
            var found = (org.apache.kafka.common.TopicPartition) partition.invoke(entry);
            entries.add(found.topic() + "|" + found.partition() + "|" + offset.invoke(entry));
        }
        return entries.toString();
    }

    static <T> List<T> checkpoint(byte[] content, CheckpointFile.EntryFormatter<T> formatter) throws IOException {
        Path file = Files.write(folder.resolve("checkpoint"), content);
        try (BufferedReader reader = Files.newBufferedReader(file, StandardCharsets.UTF_8)) {
            return new CheckpointFile.CheckpointReadBuffer<>("checkpoint", reader, 0, formatter).read();
        }
    }

    static String epochs(byte[] content) throws Throwable {
        checkpoint(content, LeaderEpochCheckpointFile.FORMATTER);
        Files.write(folder.resolve("leader-epoch-checkpoint"), content);
        var file = new LeaderEpochCheckpointFile(folder.resolve("leader-epoch-checkpoint").toFile(), new LogDirFailureChannel(1));
        var cache = new LeaderEpochFileCache(new org.apache.kafka.common.TopicPartition("cache", 0), file, null);
        var entries = new StringJoiner(";");
        for (EpochEntry entry : cache.epochEntries())
            entries.add(entry.epoch() + "|" + entry.startOffset());
        return entries.toString();
    }

    static String metadata(byte[] content) throws Throwable {
        Path file = Files.write(folder.resolve("metadata"), content);
        Method read = PartitionMetadataReadBuffer.class.getDeclaredMethod("read");
        read.setAccessible(true);
        try (BufferedReader reader = Files.newBufferedReader(file, StandardCharsets.UTF_8)) {
            var found = (PartitionMetadata) read.invoke(new PartitionMetadataReadBuffer("metadata", reader));
            return found.version() + "|" + found.topicId();
        } catch (InvocationTargetException wrapper) {
            throw wrapper.getCause();
        }
    }

    static Properties loaded(byte[] content) throws IOException {
        Properties found = new Properties();
        found.load(new ByteArrayInputStream(content));
        return found;
    }

    static String properties(byte[] content) throws IOException {
        var entries = new StringJoiner("\1");
        var found = new TreeMap<Object, Object>(loaded(content));
        found.forEach((key, value) -> entries.add(key + "\2" + value));
        return entries.toString();
    }

    static String meta(byte[] content) throws IOException {
        MetaProperties found = new MetaProperties.Builder(loaded(content)).build();
        String node = found.nodeId().isPresent() ? "" + found.nodeId().getAsInt() : "None";
        String directory = found.directoryId().map(Uuid::toString).orElse("None");
        return found.version().number() + "|" + found.clusterId().orElse("None") + "|" + node + "|" + directory;
    }
}
