import java.io.FileInputStream;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;

/**
 * Runs the nodes of a cluster in one JVM, one cluster after the other: a start in a warm JVM takes a tenth of the time.
 *
 * A request is "start" and the properties files of the nodes, all started at once; "stop" for a clean stop of all or of those named;
 * "leave" for one that nobody waits for; "ended" for what would have ended a JVM since it began.  The answer's third text is what failed.  A node that did not start leaves threads behind: end
 * the JVM then.
 */
public class HostNodes extends RequestLoop {
    private static volatile String ended = "";
    private final Map<String, KafkaRaftServer> nodes = new LinkedHashMap<>();

    public static void main(String[] given) throws Exception {
        Exit.setExitProcedure(HostNodes::end);
        Exit.setHaltProcedure(HostNodes::end);
        Exit.setShutdownHookAdder((name, hook) -> { });
        new HostNodes().run();
        Runtime.getRuntime().halt(0); // nodes do not outlive whoever asked for them
    }

    private static void end(int code, String message) {
        ended = Thread.currentThread().getName() + " ended it: " + code + " " + message;
        throw new IllegalStateException(ended);
    }

    Answer answer(String[] request) throws Exception {
        Map<String, CompletableFuture<Void>> parts = new LinkedHashMap<>();
        if (request[0].equals("ended"))
            return new Answer(0, "", "", ended);
        if (request[0].equals("start")) {
            for (int at = 1; at < request.length; at++) {
                Properties properties = new Properties();
                try (FileInputStream file = new FileInputStream(request[at])) {
                    properties.load(file);
                }
                String name = request[at];
                parts.put(name, run(name, () -> {
                    KafkaRaftServer node = new KafkaRaftServer(KafkaConfig.fromProps(properties), Time.SYSTEM);
                    synchronized (nodes) {
                        nodes.put(name, node);
                    }
                    node.startup();
                }));
            }
        } else {
            synchronized (nodes) {
                List<String> named = request.length > 1 ? List.of(request).subList(1, request.length) : List.copyOf(nodes.keySet());
                for (String name : named) {
                    KafkaRaftServer node = nodes.remove(name);
                    parts.put(name, run(name, () -> {
                        node.shutdown();
                        node.awaitShutdown();
                    }));
                }
            }
            if (request[0].equals("leave"))
                parts.clear();
        }
        String failed = "";
        for (Map.Entry<String, CompletableFuture<Void>> part : parts.entrySet()) {
            try {
                while (!part.getValue().isDone() && parts.values().stream().noneMatch(CompletableFuture::isCompletedExceptionally))
                    Thread.sleep(20); // a quorum may wait for ever for a node that has failed
                if (part.getValue().isDone())
                    part.getValue().get();
            } catch (Exception wrapper) {
                Throwable cause = wrapper;
                while (cause.getCause() != null)
                    cause = cause.getCause();
                failed += part.getKey() + ": " + cause + "\n";
            }
        }
        return new Answer(failed.isEmpty() ? 0 : 1, new byte[0], new byte[0], failed.getBytes());
    }

    /** Runs one node's part in a thread of its own: the nodes of a quorum wait for each other. */
    private static CompletableFuture<Void> run(String name, Runnable part) {
        CompletableFuture<Void> done = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                part.run();
                done.complete(null);
            } catch (Throwable problem) {
                done.completeExceptionally(problem);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        return done;
    }
}
