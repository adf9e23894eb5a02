import java.io.*;
import java.lang.reflect.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.placement.*;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Kafka's own placers of replicas.
 *
 * A request on stdin is a line of fields, with tabs between them; the answer is a line: the partitions' replicas as
 * 0,1;1,2, or ! and the name of the exception.  A broker is ID, then f if it is fenced, then =RACK if it has one.
 *
 *   striped SEED PARTITIONS REPLICATION BROKER…                        the controller's
 *   classic SEED START FIRST PARTITIONS REPLICATION BROKER…            up to 3.9; START -1: drawn, by a generator with SEED
 *   grow TOTAL REPLICAS BROKER…                                        3.9 with ZooKeeper adds to partitions 0,1;1,2
 */
public class PlaceReplicas {
    record Broker(int id, boolean fenced, Optional<String> rack) {
        static Broker of(String text) {
            int equals = text.indexOf('=');
            String head = equals < 0 ? text : text.substring(0, equals);
            boolean fenced = head.endsWith("f");
            int id = Integer.parseInt(fenced ? head.substring(0, head.length() - 1) : head);
            return new Broker(id, fenced, equals < 0 ? Optional.empty() : Optional.of(text.substring(equals + 1)));
        }
    }

    public static void main(String[] given) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder answers = new StringBuilder();
        for (String line; (line = input.readLine()) != null;) {
            String[] request = line.split("\t");
            int fields = switch (request[0]) { case "striped" -> 4; case "classic" -> 6; default -> 3; };
            List<Broker> brokers = Arrays.stream(request).skip(fields).map(Broker::of).toList();
            try {
                answers.append(switch (request[0]) {
                    case "striped" -> striped(request, brokers);
                    case "classic" -> classic(request, brokers);
                    default -> grow(request, brokers);
                });
            } catch (InvocationTargetException wrapper) {
                answers.append("!").append(wrapper.getCause().getClass().getSimpleName());
            } catch (RuntimeException refused) {
                answers.append("!").append(refused.getClass().getSimpleName());
            }
            answers.append('\n');
        }
        System.out.print(answers);
    }

    static String line(Stream<? extends Collection<?>> partitions) {
        return partitions.map(each -> each.stream().map(Object::toString).collect(Collectors.joining(",")))
            .collect(Collectors.joining(";"));
    }

    static String striped(String[] request, List<Broker> brokers) {
        var usable = brokers.stream().map(each -> new UsableBroker(each.id, each.rack, each.fenced)).toList();
        var cluster = new ClusterDescriber() {
            public Iterator<UsableBroker> usableBrokers() {
                return usable.iterator();
            }

            public Uuid defaultDir(int broker) {
                return Uuid.ZERO_UUID;
            }
        };
        var placer = new StripedReplicaPlacer(new Random(Long.parseLong(request[1])));
        var spec = new PlacementSpec(0, Integer.parseInt(request[2]), Short.parseShort(request[3]));
        return line(placer.place(spec, cluster).assignments().stream().map(PartitionAssignment::replicas));
    }

    /** The classes are gone in 4.0, with whose jars this is compiled. */
    static List<Object> known(List<Broker> brokers) throws Exception {
        var made = Class.forName("org.apache.kafka.admin.BrokerMetadata").getConstructor(int.class, Optional.class);
        List<Object> found = new ArrayList<>();
        for (Broker each : brokers)
            found.add(made.newInstance(each.id, each.rack));
        return found;
    }

    static String classic(String[] request, List<Broker> brokers) throws Exception {
        Class<?> admin = Class.forName("org.apache.kafka.admin.AdminUtils");
        Field random = admin.getDeclaredField("RAND");
        random.setAccessible(true);
        ((Random) random.get(null)).setSeed(Long.parseLong(request[1]));
        int[] numbers = Arrays.stream(request).skip(2).limit(4).mapToInt(Integer::parseInt).toArray();
        Method assign = admin.getMethod("assignReplicasToBrokers", Collection.class, int.class, int.class, int.class, int.class);
        var found = (Map<?, ?>) assign.invoke(null, known(brokers), numbers[2], numbers[3], numbers[0], numbers[1]);
        return line(new TreeMap<>(found).values().stream().map(each -> (List<?>) each));
    }

    static String grow(String[] request, List<Broker> brokers) throws Exception {
        Class<?> one = Class.forName("kafka.controller.ReplicaAssignment");
        Method make = one.getMethod("apply", scala.collection.Seq.class);
        Map<Object, Object> existing = new HashMap<>();
        for (String replicas : request[2].split(";")) {
            List<Object> ids = Arrays.stream(replicas.split(",")).map(each -> (Object) Integer.valueOf(each)).toList();
            existing.put(existing.size(), make.invoke(null, CollectionConverters.asScala(ids).toSeq()));
        }
        Class<?> client = Class.forName("kafka.zk.AdminZkClient");
        Object zookeeper = client.getConstructors()[0].newInstance(null, scala.Option.empty());
        Method add = Arrays.stream(client.getMethods()).filter(each -> each.getName().equals("addPartitions")).findFirst().get();
        var all = CollectionConverters.asScala(known(brokers)).toSeq();
        var whole = (scala.collection.Map<?, ?>) add.invoke(
            zookeeper, "topic", CollectionConverters.asScala(existing), all, Integer.parseInt(request[1]), scala.Option.empty(), true);
        Map<Object, Collection<?>> found = new TreeMap<>();
        CollectionConverters.asJava(whole).forEach((number, replicas) ->
            found.put(number, CollectionConverters.asJava((scala.collection.Seq<?>) replicas)));
        return line(found.values().stream());
    }
}
