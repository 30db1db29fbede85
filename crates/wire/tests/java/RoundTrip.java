// Reads lines "NAME VERSION HEX" and answers each with what Kafka's own generated classes write after reading it.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

public class RoundTrip {
    private static final String[] PLACES = {
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.metadata.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
        "org.apache.kafka.raft.generated.%s",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.%s",
        "org.apache.kafka.storage.internals.log.generated.%s",
        "org.apache.kafka.storage.generated.%s",
    };

    private static Message empty(String name) throws ReflectiveOperationException {
        for (String place : PLACES) {
            try {
                return (Message) Class.forName(String.format(place, name)).getConstructor().newInstance();
            } catch (ClassNotFoundException next) {
                // The next package may have it.
            }
        }
        return null;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            Message message = empty(words[0]);
            if (message == null) {
                answers.append("unknown\n");
                continue;
            }
            try {
                ByteBuffer input = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
                message.read(new ByteBufferAccessor(input), version);
                ByteBuffer output = MessageUtil.toByteBufferAccessor(message, version).buffer();
                byte[] bytes = new byte[output.remaining()];
                output.get(bytes);
                answers.append(HexFormat.of().formatHex(bytes)).append(input.hasRemaining() ? " with a rest" : "").append('\n');
            } catch (Exception failure) {
                answers.append(failure.toString().replace('\n', ' ')).append('\n');
            }
        }
        System.out.print(answers);
    }
}
