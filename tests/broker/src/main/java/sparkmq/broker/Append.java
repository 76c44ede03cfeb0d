package sparkmq.broker;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;

/** Puts messages into a stopped store that no client can send. */
final class Append implements Command {
    private static final char NAME_END = 1;
    private static final char PROPERTY_END = 2;
    private static final long MOVED_QUEUE_BEGIN = 450;
    private static final int MESSAGES_PER_KIND = 6;

    @Override
    public int run(Arguments arguments) throws Exception {
        Random random = new Random(arguments.number("seed"));
        int messages = 0;
        try (OpenStore opened = OpenStore.openToAppend(arguments.path("store"), arguments.settings())) {
            if (opened.messageStore().getMaxOffsetInQueue("MovedQueue", 0) == 0) {
                Release.beginQueueAt(opened.messageStore(), "MovedQueue", 0, MOVED_QUEUE_BEGIN);
            }
            for (int i = 0; i < MESSAGES_PER_KIND; i++) {
                for (DirectMessage message : kinds(random, i)) {
                    PutMessageResult result = Release.put(opened.messageStore(), message);
                    if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
                        throw new IOException(result.getPutMessageStatus() + " for " + message);
                    }
                    messages++;
                }
            }
            opened.awaitDispatch();
        }
        Json.print(Map.of("messages", messages));
        return 0;
    }

    private static List<DirectMessage> kinds(Random random, int number) throws IOException {
        InetSocketAddress sender = host("10.1.2.3", 50123);
        InetSocketAddress senderV6 = host("fe80::1:2:" + Integer.toHexString(random.nextInt(0x10000)), 65535);
        InetSocketAddress broker = host("127.0.0.1", 10911);
        InetSocketAddress brokerV6 = host("2001:db8:0:1::a", 10911);
        byte[] body = ("direct " + random.nextInt(1000)).getBytes(StandardCharsets.UTF_8);
        int length = Math.min(128 + number * 8, Protocol.LONGEST_TOPIC);
        String longTopic = ("Long-" + "topic".repeat(length)).substring(0, length);
        String key = property("KEYS", "direct" + number + " shared");
        String tagA = property("TAGS", "TagA");
        // The first record of a log must have IPv4 hosts: 5.3.3 fails to read the time of one with IPv6.
        return List.of(
            new DirectMessage("DirectTopic", 2, new byte[0], key, null, 0, sender, broker),
            new DirectMessage("DirectTopic", 0, body, key, null, 0, senderV6, broker),
            new DirectMessage("DirectTopic", 1, body, key + tagA, "TagA", 0, sender, brokerV6),
            new DirectMessage("DirectTopic", 1, body, "", null, 0, senderV6, brokerV6),
            new DirectMessage("DirectTopic", 2, body, property("empty", "") + key + property("TAGS", ""), null, 0,
                sender, broker),
            new DirectMessage("DirectTopic", 3, body, property("KEYS", "first") + property("color", "red")
                + property("color", "blue") + key + tagA, "TagA", 0, sender, broker),
            new DirectMessage("DirectTopic", 3, body, property("UNIQ_KEY", "unique" + number) + key, null, 0, sender,
                broker),
            new DirectMessage("DirectTopic", 0, body, key, null, MessageSysFlag.TRANSACTION_PREPARED_TYPE, sender,
                broker),
            new DirectMessage("DirectTopic", 0, body, key, null, MessageSysFlag.TRANSACTION_ROLLBACK_TYPE, sender,
                broker),
            new DirectMessage("MovedQueue", 0, body, key + tagA, "TagA", 0, sender, broker),
            new DirectMessage(longTopic, 0, body, key, null, 0, sender, broker));
    }

    private static InetSocketAddress host(String address, int port) throws IOException {
        return new InetSocketAddress(InetAddress.getByName(address), port);
    }

    private static String property(String name, String value) {
        return name + NAME_END + value + PROPERTY_END;
    }
}
