// Runs one real Kafka node in this JVM, formatted and started in one go, and ends with its parent.
// Owns: the order format → (ZooKeeper) → broker. Does not own: configuration files, ports, folders (the Rust harness writes them).
//
//   KafkaNode kraft CONFIG [CLUSTER_ID]      format with CLUSTER_ID first, unless it is missing
//   KafkaNode broker CONFIG MS               a broker of a ZooKeeper that another node runs, MS milliseconds later
//   KafkaNode zookeeper ZK_CONFIG CONFIG MS  ZooKeeper and, MS milliseconds later, the broker (after a kill the old session must expire first)
//
// The parent holds our standard input open; when it goes away, however it went, this JVM halts at once.

import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;

public final class KafkaNode {
    private KafkaNode() { }

    public static void main(String[] args) throws Exception {
        haltWithParent();
        if (args[0].equals("kraft")) {
            if (args.length > 2) {
                format(args[1], args[2]);
            }
            run("kafka.Kafka", args[1]);
        } else if (args[0].equals("broker")) {
            Thread.sleep(Long.parseLong(args[2]));
            run("kafka.Kafka", args[1]);
        } else {
            String zooKeeperConfig = args[1];
            Thread zooKeeper = new Thread(() -> run("org.apache.zookeeper.server.quorum.QuorumPeerMain", zooKeeperConfig), "zookeeper");
            zooKeeper.setDaemon(true);
            zooKeeper.start();
            Thread.sleep(Long.parseLong(args[3]));
            run("kafka.Kafka", args[2]);
        }
    }

    private static void format(String config, String clusterId) throws Exception {
        Method execute = Class.forName("kafka.tools.StorageTool").getMethod("execute", String[].class, PrintStream.class);
        String[] command = {"format", "-t", clusterId, "-c", config, "--ignore-formatted"};
        int code = (int) execute.invoke(null, command, System.out);
        if (code != 0) {
            System.exit(code);
        }
    }

    private static void run(String mainClass, String... arguments) {
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (ReflectiveOperationException e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(3);
        }
    }

    private static void haltWithParent() {
        InputStream parent = System.in;
        Thread watch = new Thread(() -> {
            try {
                while (parent.read() >= 0) { }
            } catch (java.io.IOException gone) {
                // the same as the end of the stream
            }
            deleteAtEnd();
            Runtime.getRuntime().halt(0);
        }, "parent-watch");
        watch.setDaemon(true);
        watch.start();
    }

    /** A node that many tests share has no owner left that could remove its folder. */
    private static void deleteAtEnd() {
        String dir = System.getenv("TARN_DELETE_AT_END");
        if (dir == null) {
            return;
        }
        try (Stream<Path> files = Files.walk(Path.of(dir))) {
            files.sorted(Comparator.reverseOrder()).forEach(f -> f.toFile().delete());
        } catch (java.io.IOException | java.io.UncheckedIOException e) {
            // the broker is still writing: what is left is small
        }
    }
}
