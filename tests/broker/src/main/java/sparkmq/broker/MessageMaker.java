package sparkmq.broker;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.common.message.Message;

/** Makes messages from a seed: the same seed gives the same topics, tags, keys, properties and bodies. */
final class MessageMaker {
    private static final List<String> TOPICS = List.of("OrderEvents", "PaymentLog", "user_activity");
    private static final List<String> TAGS = List.of("TagA", "TagB", "paid", "订单", "ключ", "Aa", "BB");
    private static final List<String> WORDS = List.of(
        "order", "payment", "café", "naïve", "上海", "заказ", "𝄞", "user", "price", "\"quoted\"", "line\n");
    private static final List<String> KEY_STEMS = List.of("ORD-", "user", "k", "订单号", "дом", "Aa", "BB");

    private final Random random;
    private int made;

    MessageMaker(int seed) {
        random = new Random(seed);
    }

    static List<String> topics() {
        return TOPICS;
    }

    /** A message for one of the ordinary topics. */
    Message next() {
        return next(TOPICS.get(random.nextInt(TOPICS.size())));
    }

    Message next(String topic) {
        return next(topic, text(20 + random.nextInt(180)));
    }

    /** A message whose body is long enough to be compressed by its sender. */
    Message nextBig(String topic) {
        return next(topic, text(4_500 + random.nextInt(4_000)));
    }

    private Message next(String topic, String body) {
        Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        made++;
        if (random.nextInt(5) > 0) {
            message.setTags(TAGS.get(random.nextInt(TAGS.size())));
        }
        int keys = random.nextInt(5);
        if (keys > 0) {
            List<String> names = new ArrayList<>();
            for (int i = 0; i < keys; i++) {
                names.add(KEY_STEMS.get(random.nextInt(KEY_STEMS.size())) + random.nextInt(made + 1));
            }
            message.setKeys(String.join(" ", names));
        }
        if (random.nextInt(3) == 0) {
            message.putUserProperty("region", random.nextBoolean() ? "eu-west" : "上海");
        }
        if (random.nextInt(4) == 0) {
            message.putUserProperty("price", Integer.toString(random.nextInt(1000)));
        }
        if (random.nextInt(8) == 0) {
            message.setFlag(random.nextInt());
        }
        return message;
    }

    int nextInt(int bound) {
        return random.nextInt(bound);
    }

    private String text(int length) {
        StringBuilder text = new StringBuilder();
        while (text.length() < length) {
            text.append(WORDS.get(random.nextInt(WORDS.size()))).append(' ').append(random.nextInt(100)).append(' ');
        }
        return text.toString();
    }
}
