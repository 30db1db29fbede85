// The Java client as applications use it, for every version from 2.1 on: produce with each codec, read, group, admin.
// Prints one line a step: its name, a tab, its outcome. Calls that a version does not have are left out of what it does.
// Not here: what is right; the same program runs against a real Kafka, and the outcomes are compared.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Client {
    private static final int RECORDS = 20;
    private static final int PARTITIONS = 4;
    private static final long LIMIT_MS = 45_000;
    private static final long TIME_BASE = System.currentTimeMillis() / 1000 * 1000 - 3_600_000;
    private static String bootstrap;
    private static String prefix;

    private interface Step {
        String run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        try (AdminClient admin = AdminClient.create(common())) {
            step("admin create", () -> {
                admin.createTopics(Arrays.asList(topic("codecs", 1), topic("group", PARTITIONS), topic("time", 1))).all().get();
                return "created";
            });
            for (String codec : Arrays.asList("none", "gzip", "snappy", "lz4", "zstd")) {
                step("produce " + codec, () -> produce(codec));
            }
            step("read from the start", () -> readAll(name("codecs"), 0));
            step("read from a time", Client::time);
            step("group", Client::group);
            adminSteps(admin);
        }
        System.exit(0);
    }

    private static void adminSteps(AdminClient admin) throws Exception {
        step("admin describe topic", () -> {
            Object d = described(admin, "group");
            return d.toString().contains("(partition=3") ? "4 partitions" : d.toString();
        });
        step("admin list topics", () -> String.valueOf(admin.listTopics().names().get().contains(name("codecs"))));
        ConfigResource config = new ConfigResource(ConfigResource.Type.TOPIC, name("codecs"));
        step("admin describe configs", () -> {
            Config c = admin.describeConfigs(Collections.singleton(config)).all().get().get(config);
            return c.get("retention.ms").value() + " " + c.get("cleanup.policy").value();
        });
        step("admin create partitions", () -> {
            admin.createPartitions(Collections.singletonMap(name("time"), NewPartitions.increaseTo(3))).all().get();
            return "grown";
        });
        step("admin delete records", () -> {
            TopicPartition p = new TopicPartition(name("codecs"), 0);
            return String.valueOf(admin.deleteRecords(Collections.singletonMap(p, RecordsToDelete.beforeOffset(5)))
                .lowWatermarks().get(p).get().lowWatermark());
        });
        step("admin describe cluster", () -> String.valueOf(admin.describeCluster().nodes().get().size()));
        step("admin describe log dirs", () -> String.valueOf(futures(admin.describeLogDirs(
            Collections.singleton(admin.describeCluster().nodes().get().iterator().next().id()))).size()));
        step("admin list groups", () -> String.valueOf(admin.listConsumerGroups().all().get().stream()
            .anyMatch(g -> g.groupId().equals(prefix + "-g"))));
        step("admin describe group", () -> String.valueOf(
            admin.describeConsumerGroups(Collections.singleton(prefix + "-g")).all().get().get(prefix + "-g").members().size()));
        step("admin group offsets", () -> String.valueOf(
            admin.listConsumerGroupOffsets(prefix + "-g").partitionsToOffsetAndMetadata().get().values().stream()
                .mapToLong(o -> o.offset()).sum()));
        step("admin delete group", () -> {
            admin.deleteConsumerGroups(Collections.singleton(prefix + "-g")).all().get();
            return "deleted";
        });
        step("admin delete topic", () -> {
            admin.deleteTopics(Collections.singleton(name("codecs"))).all().get();
            return "deleted";
        });
        step("admin describe a missing topic", () -> String.valueOf(described(admin, "nowhere")));
    }

    private static Object described(AdminClient admin, String stem) throws Exception {
        return futures(admin.describeTopics(Collections.singleton(name(stem)))).get(name(stem)).get();
    }

    // The futures of a result: the method that gives them was renamed between 2.1 and 4.0.
    @SuppressWarnings("unchecked")
    private static Map<Object, KafkaFuture<Object>> futures(Object result) throws Exception {
        for (String method : Arrays.asList("topicNameValues", "descriptions", "values")) {
            try {
                return (Map<Object, KafkaFuture<Object>>) result.getClass().getMethod(method).invoke(result);
            } catch (NoSuchMethodException e) {
                continue;
            }
        }
        throw new NoSuchMethodException(result.getClass().getName());
    }

    private static NewTopic topic(String stem, int partitions) {
        return new NewTopic(name(stem), partitions, (short) 1);
    }

    private static String name(String stem) {
        return prefix + "-" + stem;
    }

    private static void step(String name, Step step) {
        String outcome;
        try {
            outcome = step.run();
        } catch (ExecutionException e) {
            outcome = "failed: " + e.getCause().getClass().getSimpleName();
        } catch (Exception e) {
            outcome = "failed: " + e.getClass().getSimpleName();
        }
        System.out.println(name + "\t" + outcome);
    }

    private static Properties common() {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("request.timeout.ms", "20000");
        return p;
    }

    private static KafkaProducer<String, String> producer(String codec) {
        Properties p = common();
        p.put("acks", "all");
        p.put("compression.type", codec);
        p.put("linger.ms", "20");
        return new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
    }

    private static String produce(String codec) throws Exception {
        try (KafkaProducer<String, String> producer = producer(codec)) {
            List<java.util.concurrent.Future<?>> sent = new ArrayList<>();
            for (int i = 0; i < RECORDS; i++) {
                sent.add(producer.send(new ProducerRecord<>(name("codecs"), "k" + i, codec + "-" + i)));
            }
            for (java.util.concurrent.Future<?> f : sent) {
                f.get();
            }
        }
        return RECORDS + " acknowledged";
    }

    private static KafkaConsumer<String, String> consumer(String group) {
        Properties p = common();
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("session.timeout.ms", "10000");
        p.put("heartbeat.interval.ms", "500");
        if (group != null) {
            p.put("group.id", group);
        }
        return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
    }

    private static String readAll(String topic, long from) {
        try (KafkaConsumer<String, String> consumer = consumer(null)) {
            TopicPartition p = new TopicPartition(topic, 0);
            consumer.assign(Collections.singleton(p));
            consumer.seek(p, from);
            long end = consumer.endOffsets(Collections.singleton(p)).get(p);
            List<String> values = new ArrayList<>();
            long deadline = System.currentTimeMillis() + LIMIT_MS;
            while (consumer.position(p) < end && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(200))) {
                    values.add(r.value());
                }
            }
            return values.size() + " records, hash " + values.hashCode();
        }
    }

    private static String time() throws Exception {
        try (KafkaProducer<String, String> producer = producer("none")) {
            for (int i = 0; i < RECORDS; i++) {
                producer.send(new ProducerRecord<>(name("time"), 0, TIME_BASE + i * 1000L, "k", "t-" + i)).get();
            }
        }
        TopicPartition p = new TopicPartition(name("time"), 0);
        long offset;
        try (KafkaConsumer<String, String> consumer = consumer(null)) {
            offset = consumer.offsetsForTimes(Collections.singletonMap(p, TIME_BASE + 6_500L)).get(p).offset();
        }
        return "offset " + offset + ", " + readAll(name("time"), offset);
    }

    private static String group() throws Exception {
        fill(10);
        Set<String> seen = new HashSet<>();
        String shares;
        try (KafkaConsumer<String, String> a = consumer(prefix + "-g"); KafkaConsumer<String, String> b = consumer(prefix + "-g")) {
            a.subscribe(Collections.singleton(name("group")));
            b.subscribe(Collections.singleton(name("group")));
            Thread second = new Thread(() -> drain(b, seen, 10 * PARTITIONS));
            second.start();
            drain(a, seen, 10 * PARTITIONS);
            second.join(LIMIT_MS);
            shares = new TreeSet<>(Arrays.asList(a.assignment().size(), b.assignment().size())).toString();
        }
        fill(1);
        Set<String> again = new HashSet<>();
        try (KafkaConsumer<String, String> c = consumer(prefix + "-g")) {
            c.subscribe(Collections.singleton(name("group")));
            drain(c, again, PARTITIONS);
        }
        return seen.size() + " read by two with shares of " + shares + ", then " + again.size();
    }

    private static void fill(int each) throws Exception {
        try (KafkaProducer<String, String> producer = producer("none")) {
            for (int i = 0; i < each * PARTITIONS; i++) {
                producer.send(new ProducerRecord<>(name("group"), i % PARTITIONS, "k", "v")).get();
            }
        }
    }

    private static void drain(KafkaConsumer<String, String> consumer, Set<String> seen, int until) {
        long deadline = System.currentTimeMillis() + LIMIT_MS;
        long quiet = 0;
        while (System.currentTimeMillis() < deadline) {
            boolean any = false;
            for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(200))) {
                any = true;
                synchronized (seen) {
                    seen.add(r.partition() + "@" + r.offset());
                }
            }
            if (any) {
                consumer.commitSync();
            }
            boolean all;
            synchronized (seen) {
                all = seen.size() >= until;
            }
            // Two members each hold half; one alone holds all. The wait after the last record lets the second member's join be seen.
            boolean settled = until == PARTITIONS || consumer.assignment().size() == PARTITIONS / 2;
            quiet = all && settled && !any ? quiet + 1 : 0;
            if (quiet >= 5) {
                return;
            }
        }
    }
}
