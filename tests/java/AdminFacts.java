import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;

/**
 * Gives a cluster something of everything, and says what an administrator is told of it, a line for each fact, sorted.
 *
 * Arguments: bootstrap servers, "prepare" or "tell", and for "tell" the brokers that are alive.
 */
public class AdminFacts {
    static Admin admin;
    static final SortedSet<String> lines = new TreeSet<>();

    public static void main(String[] given) throws Exception {
        try (Admin made = Admin.create(Map.of("bootstrap.servers", given[0], "request.timeout.ms", "20000"))) {
            admin = made;
            if (given[1].equals("prepare")) {
                prepare();
            } else {
                Set<Integer> alive = Arrays.stream(given[2].split(",")).map(Integer::valueOf).collect(Collectors.toSet());
                awaitOthersGone(alive);
                tell(alive);
                lines.forEach(System.out::println);
            }
        }
    }

    static void prepare() throws Exception {
        Map<String, String> settings = Map.of("min.insync.replicas", "2", "retention.ms", "86400000");
        NewTopic again = new NewTopic("again", 2, (short) 2);
        admin.createTopics(List.of(new NewTopic("spread", 3, (short) 3).configs(settings),
            new NewTopic("lonely", Map.of(0, List.of(2), 1, List.of(1))), new NewTopic("odd.na-me_1", 1, (short) 2), again)).all().get();
        admin.deleteTopics(List.of("again")).all().get();
        for (int tries = 0; tries < 100 && admin.listTopics().names().get().contains("again"); tries++) Thread.sleep(100);
        admin.createTopics(List.of(again)).all().get();
        admin.incrementalAlterConfigs(Map.of(
            new ConfigResource(ConfigResource.Type.BROKER, ""), List.of(set("log.retention.ms", "987654321")),
            new ConfigResource(ConfigResource.Type.BROKER, "1"), List.of(set("log.cleaner.threads", "2")),
            new ConfigResource(ConfigResource.Type.TOPIC, "odd.na-me_1"), List.of(set("cleanup.policy", "compact")))).all().get();
        Map<String, String> everyClient = new HashMap<>();
        everyClient.put("client-id", null);
        admin.alterClientQuotas(List.of(
            new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("user", "u1")),
                List.of(new ClientQuotaAlteration.Op("request_percentage", 12.5))),
            new ClientQuotaAlteration(new ClientQuotaEntity(everyClient),
                List.of(new ClientQuotaAlteration.Op("consumer_byte_rate", 2048.0))))).all().get();
        admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("u1", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4097), "secret"),
            new UserScramCredentialUpsertion("u2", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 5000), "secret"))).all().get();
        admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion("u2", ScramMechanism.SCRAM_SHA_512))).all().get();
        admin.createAcls(List.of(
            new AclBinding(new ResourcePattern(ResourceType.TOPIC, "other", PatternType.PREFIXED),
                new AccessControlEntry("User:u1", "10.0.0.1", AclOperation.READ, AclPermissionType.ALLOW)),
            new AclBinding(new ResourcePattern(ResourceType.GROUP, "g", PatternType.LITERAL),
                new AccessControlEntry("User:*", "*", AclOperation.DESCRIBE, AclPermissionType.DENY)))).all().get();
    }

    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    static Map<String, TopicDescription> topics() throws Exception {
        return admin.describeTopics(admin.listTopics().names().get()).allTopicNames().get();
    }

    /** Wait until nothing is led by a broker that is gone, and no leader counts one as in sync. */
    static void awaitOthersGone(Set<Integer> alive) throws Exception {
        for (int tries = 0; tries < 600; tries++, Thread.sleep(200)) {
            boolean gone = topics().values().stream().flatMap(topic -> topic.partitions().stream()).allMatch(p ->
                p.leader() == null || p.leader().isEmpty()
                    || alive.contains(p.leader().id()) && p.isr().stream().allMatch(node -> alive.contains(node.id())));
            if (gone) return;
        }
        throw new IllegalStateException("brokers that were killed are still in sync");
    }

    static List<Integer> ids(List<Node> nodes) {
        return nodes == null ? List.of() : nodes.stream().map(Node::id).collect(Collectors.toList());
    }

    static void tell(Set<Integer> alive) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        lines.add("cluster " + cluster.clusterId().get());
        for (Node node : cluster.nodes().get()) lines.add("broker " + node.id() + " " + node.rack() + " " + node.host() + ":" + node.port());
        List<ConfigResource> resources = new ArrayList<>(List.of(new ConfigResource(ConfigResource.Type.BROKER, "")));
        for (int id : alive) resources.add(new ConfigResource(ConfigResource.Type.BROKER, "" + id));
        topics().forEach((name, topic) -> {
            resources.add(new ConfigResource(ConfigResource.Type.TOPIC, name));
            lines.add("topic " + name + " " + topic.topicId());
            topic.partitions().forEach(p -> lines.add("partition " + name + "-" + p.partition() + " "
                + (p.leader() == null || p.leader().isEmpty() ? -1 : p.leader().id()) + " " + ids(p.replicas()) + " " + ids(p.isr())
                + " " + ids(p.elr()) + " " + ids(p.lastKnownElr())));
        });
        Set<ConfigEntry.ConfigSource> own = Set.of(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG);
        admin.describeConfigs(resources).all().get().forEach((resource, config) -> config.entries().forEach(entry -> {
            boolean every = resource.name().isEmpty() && entry.source() == ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG;
            if (every || own.contains(entry.source()))
                lines.add("config " + resource.type().name().toLowerCase() + " " + resource.name() + " " + entry.name() + "=" + entry.value());
        }));
        admin.describeFeatures().featureMetadata().get().finalizedFeatures().forEach((name, levels) ->
            lines.add("feature " + name + " " + levels.maxVersionLevel()));
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, values) ->
            lines.add("quota " + entity.entries() + " " + new TreeMap<>(values)));
        admin.describeUserScramCredentials().all().get().forEach((user, found) -> found.credentialInfos().forEach(one ->
            lines.add("scram " + user + " " + one.mechanism().mechanismName() + " " + one.iterations())));
        for (AclBinding one : admin.describeAcls(AclBindingFilter.ANY).values().get())
            lines.add(String.join(" ", "acl", one.pattern().resourceType().name(), one.pattern().name(), one.pattern().patternType().name(),
                one.entry().principal(), one.entry().host(), one.entry().operation().name(), one.entry().permissionType().name()));
        QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
        lines.add("quorum " + quorum.leaderId() + " " + quorum.leaderEpoch());
    }
}
