package sparkmq.broker;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Groups that subscribed with SQL92 expressions, and one that subscribed to tags, receive what the broker and their
 * clients let through. Messages are sent before there is a group, while all groups consume, and after they stopped;
 * the last one is delayed.
 *
 * <p>Prints each group's subscription, and each message that a group received, an event a line.
 */
final class Filtered implements Command {
    static final String TOPIC = "FilterDemo";
    private static final String TAG_GROUP = "GID_tags";
    /** The tags Aa and BB have the same hash. */
    private static final String TAGS = "Aa || paid";
    private static final Map<String, String> EXPRESSIONS = new TreeMap<>(Map.of(
        "GID_rich", "price > 50 AND region = 'eu'",
        "GID_any", "vip IS NOT NULL OR price BETWEEN 10 AND 20",
        "GID_tag_words", "TAGS IN ('paid', 'BB') AND NOT (region = 'us')",
        "GID_never", "price > 50 AND price < 50 OR last IS NOT NULL"));
    private static final String[] ALL_TAGS = {"Aa", "BB", "paid", "shipped", null};
    private static final String[] REGIONS = {"eu", "us", "日本", null};
    private static final String[] PRICES = {"7", "15", "51", "99", "1.5", "much", null};
    private static final int QUEUES = 2;
    private static final int READ_AND_WRITE = 6;
    private static final int TWO_HOURS_LEVEL = 18;
    private static final long LONGEST_WAIT = 90_000;

    private final Random random = new Random(21);
    /** The queues of which a group received the last message. */
    private final Map<String, Set<Integer>> finished = new TreeMap<>();
    /** The offset of each queue after its last message. */
    private final Map<MessageQueue, Long> ends = new TreeMap<>();

    @Override
    public int run(Arguments arguments) throws Exception {
        String nameServer = arguments.text("name-server");
        String broker = arguments.text("broker");
        int count = arguments.number("count");
        Set<String> groups = new HashSet<>(EXPRESSIONS.keySet());
        groups.add(TAG_GROUP);
        try (Clients clients = Clients.connect(nameServer, "filtered")) {
            createTopics(clients, broker, groups);
            List<MessageQueue> queues = clients.producer().fetchPublishMessageQueues(TOPIC).stream().sorted().toList();
            send(clients.producer(), queues, count / 10);
            List<DefaultMQPushConsumer> consumers = new ArrayList<>();
            for (String group : groups) {
                finished.put(group, new HashSet<>());
                consumers.add(consumer(nameServer, group));
            }
            // The heartbeat in start() has registered each subscription.
            send(clients.producer(), queues, count);
            for (MessageQueue queue : queues) {
                ends.put(queue, clients.producer().send(last(), queue).getQueueOffset() + 1);
            }
            await("groups have not received the last messages", () -> isFinished(groups));
            await("offsets are not known to the consumers", () -> consumers.stream().allMatch(one -> knowsEnds(one, queues)));
            // A consumer sends its offsets without waiting for an answer; those that it sends last can be lost.
            consumers.forEach(one -> one.getDefaultMQPushConsumerImpl().persistConsumerOffset());
            for (String group : groups) {
                await("the broker lacks offsets of " + group, () -> hasEnds(clients, group));
            }
            consumers.forEach(consumer -> Stop.now(consumer::shutdown));
            send(clients.producer(), queues, count / 10);
            Message delayed = last();
            delayed.setDelayTimeLevel(TWO_HOURS_LEVEL);
            clients.producer().send(delayed);
        }
        return 0;
    }

    private static void createTopics(Clients clients, String broker, Collection<String> groups) throws Exception {
        List<String> topics = new ArrayList<>(List.of(TOPIC));
        groups.forEach(group -> topics.add("%RETRY%" + group));
        for (String topic : topics) {
            int queues = topic.equals(TOPIC) ? QUEUES : 1;
            clients.admin().createAndUpdateTopicConfig(broker, new TopicConfig(topic, queues, queues, READ_AND_WRITE));
        }
        clients.awaitTopics(topics);
        for (String group : groups) {
            Protocol.createGroup(clients.admin(), broker, group);
        }
    }

    private void send(DefaultMQProducer producer, List<MessageQueue> queues, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            Message message = new Message(TOPIC, "filtered".getBytes(StandardCharsets.UTF_8));
            put(message, "region", REGIONS[random.nextInt(REGIONS.length)]);
            put(message, "price", PRICES[random.nextInt(PRICES.length)]);
            put(message, "vip", random.nextInt(5) == 0 ? "true" : null);
            String tags = ALL_TAGS[random.nextInt(ALL_TAGS.length)];
            if (tags != null) {
                message.setTags(tags);
            }
            producer.send(message, queues.get(random.nextInt(queues.size())));
        }
    }

    private static void put(Message message, String name, String value) {
        if (value != null) {
            message.putUserProperty(name, value);
        }
    }

    /** A message that every group receives. */
    private static Message last() {
        Message message = new Message(TOPIC, "paid", "filtered".getBytes(StandardCharsets.UTF_8));
        put(message, "region", "eu");
        put(message, "price", "99");
        put(message, "vip", "true");
        put(message, "last", "true");
        return message;
    }

    private DefaultMQPushConsumer consumer(String nameServer, String group) throws Exception {
        DefaultMQPushConsumer consumer = Clients.configure(new DefaultMQPushConsumer(group), nameServer, group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // One thread, so that the last message of a queue is also the last that arrives.
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        String expression = EXPRESSIONS.get(group);
        if (expression == null) {
            consumer.subscribe(TOPIC, TAGS);
        } else {
            consumer.subscribe(TOPIC, MessageSelector.bySql(expression));
        }
        Json.print(Map.of("event", "subscription", "group", group, "topic", TOPIC,
            "type", expression == null ? "TAG" : "SQL92", "expression", expression == null ? TAGS : expression));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> receive(group, message));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private synchronized void receive(String group, MessageExt message) {
        Json.print(Map.of("event", "received", "group", group, "topic", message.getTopic(),
            "queueId", message.getQueueId(), "queueOffset", message.getQueueOffset()));
        if (message.getUserProperty("last") != null) {
            finished.get(group).add(message.getQueueId());
        }
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private void await(String failure, Condition condition) throws Exception {
        long end = System.currentTimeMillis() + LONGEST_WAIT;
        while (!condition.holds()) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException(failure + ": " + finished);
            }
            Thread.sleep(50);
        }
    }

    /** A consumer updates its offset after the listener has returned. */
    private boolean knowsEnds(DefaultMQPushConsumer consumer, Collection<MessageQueue> queues) {
        OffsetStore offsets = consumer.getDefaultMQPushConsumerImpl().getOffsetStore();
        return queues.stream().allMatch(queue -> offsets.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY)
            == ends.get(queue));
    }

    private boolean hasEnds(Clients clients, String group) throws Exception {
        var offsets = clients.admin().examineConsumeStats(group, TOPIC).getOffsetTable();
        return ends.entrySet().stream().allMatch(end -> offsets.get(end.getKey()).getConsumerOffset() == end.getValue());
    }

    private synchronized boolean isFinished(Collection<String> groups) {
        return groups.stream().allMatch(group -> finished.get(group).size() == QUEUES);
    }
}
