// One JVM that serves many client commands for the tests: a JSON object a line in, a JSON object a line out.
// Owns: Kafka's own Java clients (admin, producers, consumers) and the generated load. Does not own: what is right; the Rust tests judge.
//
// Every command has "op" and mostly "b" (bootstrap servers). The answer has "ok"; false comes with "error" (class name) and "message".

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32C;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int CALL_TIMEOUT_MS = 30_000;

    private final Map<String, Admin> admins = new ConcurrentHashMap<>();
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new ConcurrentHashMap<>();
    private final Map<String, Load> loads = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever a library prints must not mix with the answers
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Driver driver = new Driver();
        ExecutorService workers = Executors.newCachedThreadPool(r -> {
            Thread t = new Thread(r);
            t.setDaemon(true);
            return t;
        });
        String line;
        while ((line = in.readLine()) != null) {
            JsonNode command = JSON.readTree(line);
            workers.execute(() -> {
                ObjectNode answer = driver.answer(command);
                answer.set("id", command.path("id"));
                synchronized (out) {
                    out.println(answer);
                    out.flush();
                }
            });
        }
        if (args.length > 0) { // our own folder, which nobody else can remove any more
            java.io.File dir = new java.io.File(args[0]);
            for (java.io.File f : dir.listFiles()) {
                f.delete();
            }
            dir.delete();
        }
        Runtime.getRuntime().halt(0);
    }

    private ObjectNode answer(JsonNode c) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            run(c, answer);
            answer.put("ok", true);
        } catch (Throwable e) {
            Throwable cause = e;
            while ((cause instanceof ExecutionException || cause instanceof java.util.concurrent.CompletionException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            answer.put("ok", false).put("error", cause.getClass().getSimpleName()).put("message", String.valueOf(cause.getMessage()));
        }
        return answer;
    }

    private void run(JsonNode c, ObjectNode a) throws Exception {
        String op = c.path("op").asText();
        switch (op) {
            case "ping": break;
            case "create_topic": createTopic(c, a); break;
            case "describe_topic": describeTopic(c, a); break;
            case "list_topics": listTopics(c, a); break;
            case "delete_topic": admin(c).deleteTopics(List.of(c.get("topic").asText())).all().get(); break;
            case "create_partitions":
                admin(c).createPartitions(Map.of(c.get("topic").asText(), NewPartitions.increaseTo(c.get("count").asInt()))).all().get(); break;
            case "alter_topic": alterTopic(c); break;
            case "topic_config": topicConfig(c, a); break;
            case "delete_records": deleteRecords(c, a); break;
            case "offset": offset(c, a); break;
            case "describe_producers": describeProducers(c, a); break;
            case "cluster_id": a.put("clusterId", admin(c).describeCluster().clusterId().get()); break;
            case "commit_offset": commitOffset(c); break;
            case "group_offset": groupOffset(c, a); break;
            case "produce": produce(c, a); break;
            case "producer_open": producerOpen(c); break;
            case "txn_begin": producers.get(c.get("name").asText()).beginTransaction(); break;
            case "txn_commit": producers.get(c.get("name").asText()).commitTransaction(); break;
            case "txn_abort": producers.get(c.get("name").asText()).abortTransaction(); break;
            case "producer_close": producers.remove(c.get("name").asText()).close(Duration.ofSeconds(5)); break;
            case "load_start": loadStart(c); break;
            case "load_stop": loadStop(c, a); break;
            case "consume": consume(c, a); break;
            case "seek_to_end": seekToEnd(c, a); break;
            case "subscribe": subscribe(c, a); break;
            case "forget": forget(c); break;
            default: throw new IllegalArgumentException("unknown op " + op);
        }
    }

    // ---- admin ----

    private Admin admin(JsonNode c) {
        return admins.computeIfAbsent(c.get("b").asText(), b -> {
            Properties p = new Properties();
            p.put("bootstrap.servers", b);
            p.put("default.api.timeout.ms", CALL_TIMEOUT_MS);
            p.put("request.timeout.ms", 10_000);
            p.put("reconnect.backoff.max.ms", 200);
            return Admin.create(p);
        });
    }

    /** Closes the admin client of a cluster that is about to go away, so that it does not fill the log with reconnects. */
    private void forget(JsonNode c) {
        Admin admin = admins.remove(c.get("b").asText());
        if (admin != null) {
            admin.close(Duration.ofSeconds(1));
        }
    }

    private void createTopic(JsonNode c, ObjectNode a) throws Exception {
        String name = c.get("topic").asText();
        int partitions = c.path("partitions").asInt(1);
        NewTopic topic = new NewTopic(name, Optional.of(partitions), Optional.of((short) c.path("rf").asInt(1)));
        if (c.has("assignment")) {
            // The replicas of each partition, the preferred leader first.
            Map<Integer, List<Integer>> assignment = new HashMap<>();
            for (JsonNode replicas : c.get("assignment")) {
                List<Integer> ids = new ArrayList<>();
                replicas.forEach(id -> ids.add(id.asInt()));
                assignment.put(assignment.size(), ids);
            }
            partitions = assignment.size();
            topic = new NewTopic(name, assignment);
        }
        topic.configs(strings(c.path("configs")));
        var result = admin(c).createTopics(List.of(topic));
        result.all().get();
        try {
            a.put("topicId", result.topicId(topic.name()).get().toString());
        } catch (ExecutionException oldBroker) {
            a.put("topicId", org.apache.kafka.common.Uuid.ZERO_UUID.toString());
        }
        // The controller acknowledges a topic before the broker serves it, and an idempotent producer that begins in between may get its
        // second batch in first: the first one is out of order for ever then. Each partition must have answered once.
        Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
        for (int p = 0; p < partitions; p++) {
            ends.put(new TopicPartition(topic.name(), p), OffsetSpec.latest());
        }
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (true) {
            try {
                admin(c).listOffsets(ends).all().get();
                return;
            } catch (ExecutionException e) {
                if (!(e.getCause() instanceof RetriableException) || System.nanoTime() > giveUp) {
                    throw e;
                }
                Thread.sleep(20);
            }
        }
    }

    private void describeTopic(JsonNode c, ObjectNode a) throws Exception {
        String name = c.get("topic").asText();
        TopicDescription d = admin(c).describeTopics(List.of(name)).allTopicNames().get().get(name);
        a.put("topicId", d.topicId().toString());
        a.put("partitions", d.partitions().size());
        ArrayNode leaders = a.putArray("leaders");
        d.partitions().forEach(p -> leaders.add(p.leader() == null ? -1 : p.leader().id()));
    }

    private void listTopics(JsonNode c, ObjectNode a) throws Exception {
        ArrayNode names = a.putArray("topics");
        admin(c).listTopics().names().get().stream().sorted().forEach(names::add);
    }

    private void alterTopic(JsonNode c) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, c.get("topic").asText());
        List<AlterConfigOp> ops = new ArrayList<>();
        strings(c.path("set")).forEach((k, v) -> ops.add(new AlterConfigOp(new ConfigEntry(k, v), AlterConfigOp.OpType.SET)));
        c.path("delete").forEach(k -> ops.add(new AlterConfigOp(new ConfigEntry(k.asText(), ""), AlterConfigOp.OpType.DELETE)));
        admin(c).incrementalAlterConfigs(Map.<ConfigResource, Collection<AlterConfigOp>>of(resource, ops)).all().get();
    }

    private void topicConfig(JsonNode c, ObjectNode a) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, c.get("topic").asText());
        ObjectNode configs = a.putObject("configs");
        ObjectNode sources = a.putObject("sources");
        admin(c).describeConfigs(List.of(resource)).all().get().get(resource).entries().forEach(e -> {
            configs.put(e.name(), e.value());
            sources.put(e.name(), e.source().name());
        });
    }

    private void deleteRecords(JsonNode c, ObjectNode a) throws Exception {
        TopicPartition tp = partition(c);
        var result = admin(c).deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(c.get("before").asLong())));
        a.put("lowWatermark", result.lowWatermarks().get(tp).get().lowWatermark());
    }

    private void offset(JsonNode c, ObjectNode a) throws Exception {
        TopicPartition tp = partition(c);
        IsolationLevel isolation = c.path("committed").asBoolean() ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED;
        ListOffsetsResult.ListOffsetsResultInfo info = admin(c)
            .listOffsets(Map.of(tp, spec(c.path("at"))), new ListOffsetsOptions(isolation)).partitionResult(tp).get();
        a.put("offset", info.offset()).put("timestamp", info.timestamp());
    }

    private static OffsetSpec spec(JsonNode at) {
        if (at.isNumber()) {
            return OffsetSpec.forTimestamp(at.asLong());
        }
        switch (at.asText("latest")) {
            case "earliest": return OffsetSpec.earliest();
            case "max": return OffsetSpec.maxTimestamp();
            default: return OffsetSpec.latest();
        }
    }

    private void describeProducers(JsonNode c, ObjectNode a) throws Exception {
        TopicPartition tp = partition(c);
        ArrayNode list = a.putArray("producers");
        for (ProducerState s : admin(c).describeProducers(List.of(tp)).all().get().get(tp).activeProducers()) {
            list.addObject().put("id", s.producerId()).put("epoch", s.producerEpoch()).put("lastSequence", s.lastSequence())
                .put("txnStart", s.currentTransactionStartOffset().orElse(-1));
        }
    }

    private void commitOffset(JsonNode c) throws Exception {
        admin(c).alterConsumerGroupOffsets(c.get("group").asText(), Map.of(partition(c), new OffsetAndMetadata(c.get("offset").asLong()))).all().get();
    }

    private void groupOffset(JsonNode c, ObjectNode a) throws Exception {
        OffsetAndMetadata o = admin(c).listConsumerGroupOffsets(c.get("group").asText()).partitionsToOffsetAndMetadata().get().get(partition(c));
        a.put("offset", o == null ? -1 : o.offset());
    }

    // ---- producers ----

    private static KafkaProducer<byte[], byte[]> newProducer(JsonNode c) {
        Properties p = new Properties();
        p.put("bootstrap.servers", c.get("b").asText());
        p.put("acks", "all");
        p.put("max.block.ms", CALL_TIMEOUT_MS);
        p.put("delivery.timeout.ms", 120_000);
        p.put("max.request.size", 64 << 20);
        p.put("buffer.memory", 128 << 20);
        p.put("reconnect.backoff.max.ms", 200);
        p.putAll(strings(c.path("props")));
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void producerOpen(JsonNode c) {
        KafkaProducer<byte[], byte[]> producer = newProducer(c);
        if (c.path("props").has("transactional.id")) {
            producer.initTransactions();
        }
        producers.put(c.get("name").asText(), producer);
    }

    /** Sends "records" and/or "count" generated ones; with "name" through that open producer, else through one of its own. */
    private void produce(JsonNode c, ObjectNode a) throws Exception {
        boolean own = !c.has("name");
        KafkaProducer<byte[], byte[]> producer = own ? newProducer(c) : producers.get(c.get("name").asText());
        try {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode r : c.path("records")) {
                sent.add(producer.send(record(c, r)));
                if (c.path("one_batch_each").asBoolean()) {
                    producer.flush();
                }
            }
            Random random = new Random(c.path("seed").asLong(1));
            for (int i = 0; i < c.path("count").asInt(0); i++) {
                sent.add(producer.send(new ProducerRecord<>(c.get("topic").asText(), partitionOf(c, i), null,
                    ("k" + i).getBytes(StandardCharsets.UTF_8), randomBytes(random, c.path("size").asInt(100)))));
            }
            producer.flush();
            ArrayNode offsets = a.putArray("offsets");
            long last = -1;
            for (Future<RecordMetadata> f : sent) {
                last = f.get(CALL_TIMEOUT_MS, TimeUnit.MILLISECONDS).offset();
                if (offsets.size() < 1000) {
                    offsets.add(last);
                }
            }
            a.put("last", last);
        } finally {
            if (own) {
                producer.close(Duration.ofSeconds(5));
            }
        }
    }

    private static Integer partitionOf(JsonNode c, int i) {
        return c.has("partitions") ? Integer.valueOf(i % c.get("partitions").asInt()) : Integer.valueOf(c.path("partition").asInt(0));
    }

    private static ProducerRecord<byte[], byte[]> record(JsonNode c, JsonNode r) {
        List<Header> headers = new ArrayList<>();
        r.path("headers").forEach(h -> headers.add(new RecordHeader(h.get(0).asText(), bytes(h.get(1)))));
        byte[] value = r.has("size") ? randomBytes(new Random(r.path("seed").asLong(7)), r.get("size").asInt()) : bytes(r.path("value"));
        Long timestamp = r.has("timestamp") ? Long.valueOf(r.get("timestamp").asLong()) : null;
        int partition = r.has("partition") ? r.get("partition").asInt() : c.path("partition").asInt(0);
        return new ProducerRecord<>(c.get("topic").asText(), partition, timestamp, bytes(r.path("key")), value, headers);
    }

    private static byte[] randomBytes(Random random, int size) {
        byte[] b = new byte[size];
        random.nextBytes(b);
        return b;
    }

    private static byte[] bytes(JsonNode n) {
        return n.isNull() || n.isMissingNode() ? null : n.asText().getBytes(StandardCharsets.UTF_8);
    }

    /** A producer thread that writes until it is told to stop; it survives restarts of its broker. */
    private static final class Load extends Thread {
        final KafkaProducer<byte[], byte[]> producer;
        final JsonNode c;
        final AtomicLong acked = new AtomicLong();
        final AtomicLong failed = new AtomicLong();
        volatile boolean stop;

        Load(JsonNode c) {
            this.c = c;
            this.producer = newProducer(c);
            setDaemon(true);
        }

        @Override public void run() {
            List<String> topics = new ArrayList<>();
            c.get("topics").forEach(t -> topics.add(t.asText()));
            int partitions = c.path("partitions").asInt(1);
            long perSecond = c.path("rate").asLong(1000);
            Random random = new Random(c.path("seed").asLong(3));
            long started = System.nanoTime();
            for (long i = 0; !stop; i++) {
                long due = started + i * 1_000_000_000L / perSecond;
                long ahead = due - System.nanoTime();
                if (ahead > 1_000_000) {
                    try {
                        Thread.sleep(ahead / 1_000_000);
                    } catch (InterruptedException e) {
                        break;
                    }
                }
                String topic = topics.get((int) (i / partitions % topics.size()));
                byte[] value = ByteBuffer.allocate(8 + c.path("size").asInt(100)).putLong(i).array();
                random.nextBytes(value);
                ByteBuffer.wrap(value).putLong(i);
                try {
                    producer.send(new ProducerRecord<>(topic, (int) (i % partitions), null, null, value), (m, e) -> (e == null ? acked : failed).incrementAndGet());
                } catch (RuntimeException e) {
                    failed.incrementAndGet();
                }
            }
            producer.flush();
            producer.close(Duration.ofSeconds(30));
        }
    }

    private void loadStart(JsonNode c) {
        Load load = new Load(c);
        loads.put(c.get("name").asText(), load);
        load.start();
    }

    private void loadStop(JsonNode c, ObjectNode a) throws Exception {
        Load load = loads.remove(c.get("name").asText());
        load.stop = true;
        load.join();
        a.put("acked", load.acked.get()).put("failed", load.failed.get());
    }

    // ---- consumers ----

    private static KafkaConsumer<byte[], byte[]> newConsumer(JsonNode c) {
        Properties p = new Properties();
        p.put("bootstrap.servers", c.get("b").asText());
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "earliest");
        p.put("isolation.level", c.path("committed").asBoolean() ? "read_committed" : "read_uncommitted");
        p.put("max.poll.records", "5000");
        p.put("default.api.timeout.ms", CALL_TIMEOUT_MS);
        p.putAll(strings(c.path("props")));
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Reads one partition from "from" (default: its start) to the end that the broker names now; answers the records in canonical form. */
    private void consume(JsonNode c, ObjectNode a) {
        TopicPartition tp = partition(c);
        try (KafkaConsumer<byte[], byte[]> consumer = newConsumer(c)) {
            consumer.assign(List.of(tp));
            if (c.has("from")) {
                consumer.seek(tp, c.get("from").asLong());
            } else {
                consumer.seekToBeginning(List.of(tp));
            }
            long end = consumer.endOffsets(List.of(tp)).get(tp);
            ArrayNode records = a.putArray("records");
            long deadline = System.currentTimeMillis() + c.path("timeout_ms").asLong(CALL_TIMEOUT_MS);
            while (consumer.position(tp) < end && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    records.add(canonical(r));
                }
            }
            a.put("position", consumer.position(tp)).put("end", end);
        }
    }

    private void seekToEnd(JsonNode c, ObjectNode a) {
        TopicPartition tp = partition(c);
        try (KafkaConsumer<byte[], byte[]> consumer = newConsumer(c)) {
            consumer.assign(List.of(tp));
            consumer.seekToEnd(List.of(tp));
            a.put("position", consumer.position(tp));
        }
    }

    /** Joins a group, reads until "count" records came, commits, and leaves. */
    private void subscribe(JsonNode c, ObjectNode a) {
        try (KafkaConsumer<byte[], byte[]> consumer = newConsumer(c)) {
            consumer.subscribe(List.of(c.get("topic").asText()));
            ArrayNode records = a.putArray("records");
            long started = System.currentTimeMillis();
            long deadline = started + c.path("timeout_ms").asLong(CALL_TIMEOUT_MS);
            while (records.size() < c.get("count").asInt() && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    records.add(canonical(r));
                }
            }
            consumer.commitSync();
            a.put("took_ms", System.currentTimeMillis() - started);
        }
    }

    /** partition:offset:timestamp:key:value:headers with every byte string as length/crc32c (hex); the Rust readers make the same. */
    private static String canonical(ConsumerRecord<byte[], byte[]> r) {
        StringBuilder s = new StringBuilder();
        s.append(r.partition()).append(':').append(r.offset()).append(':').append(r.timestamp()).append(':').append(digest(r.key())).append(':').append(digest(r.value()));
        r.headers().forEach(h -> s.append(':').append(h.key()).append('=').append(digest(h.value())));
        return s.toString();
    }

    private static String digest(byte[] b) {
        if (b == null) {
            return "-";
        }
        CRC32C crc = new CRC32C();
        crc.update(b);
        return b.length + "/" + Long.toHexString(crc.getValue());
    }

    private static TopicPartition partition(JsonNode c) {
        return new TopicPartition(c.get("topic").asText(), c.path("partition").asInt(0));
    }

    private static Map<String, String> strings(JsonNode object) {
        Map<String, String> map = new HashMap<>();
        object.fields().forEachRemaining(e -> map.put(e.getKey(), e.getValue().asText()));
        return map;
    }
}
