package sparkmq.broker;

import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;

/**
 * Sends a message of each delay level, timers, and transactions that are not checked for some time.
 *
 * <p>Prints what it sent, what its consumer received, how it decided transactions, and when it ended, an event a line.
 * Only what was due when it ended was surely delivered and received, or not.
 */
final class Delay implements Command {
    static final String TOPIC = "DelayTimes";
    private static final String GROUP = "GID_delays";
    private static final int READ_AND_WRITE = 6;
    private static final int LEVELS = 18;
    private static final int LAST_LEVEL_RECEIVED = 3;
    private static final long LONGEST_WAIT = 90_000;

    private final Set<String> received = ConcurrentHashMap.newKeySet();

    @Override
    public int run(Arguments arguments) throws Exception {
        String nameServer = arguments.text("name-server");
        String broker = arguments.text("broker");
        Map<String, Integer> topics = Map.of(TOPIC, 2, ImmuneTransactions.TOPIC, 1, "%RETRY%" + GROUP, 1);
        try (Clients clients = Clients.connect(nameServer, "delay")) {
            for (Map.Entry<String, Integer> topic : topics.entrySet()) {
                clients.admin().createAndUpdateTopicConfig(broker,
                    new TopicConfig(topic.getKey(), topic.getValue(), topic.getValue(), READ_AND_WRITE));
            }
            clients.awaitTopics(topics.keySet());
            DefaultMQPushConsumer consumer = consumer(nameServer);
            try (ImmuneTransactions transactions = new ImmuneTransactions(nameServer)) {
                Map<String, String> awaited = new HashMap<>(sendLevels(clients.producer()));
                awaited.putAll(Timers.send(clients.producer()));
                transactions.send();
                await(awaited.keySet());
                transactions.await();
                Json.print(Map.of("event", "ended", "time", System.currentTimeMillis()));
                // The broker writes its op messages and its progress a moment later.
                Thread.sleep(4_000);
            } finally {
                Stop.now(consumer::shutdown);
            }
        }
        return 0;
    }

    private DefaultMQPushConsumer consumer(String nameServer) throws Exception {
        DefaultMQPushConsumer consumer = Clients.configure(new DefaultMQPushConsumer(GROUP), nameServer, "delays");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                String key = MessageClientIDSetter.getUniqID(message);
                Json.print(Map.of("event", "received", "uniqueKey", key, "offset", message.getCommitLogOffset(),
                    "queueId", message.getQueueId(), "queueOffset", message.getQueueOffset()));
                received.add(key);
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** Sends a message of each level; returns the keys of those that are received soon. */
    private static Map<String, String> sendLevels(DefaultMQProducer producer) throws Exception {
        Map<String, String> awaited = new HashMap<>();
        for (int level = 1; level <= LEVELS; level++) {
            Message message = new Message(TOPIC, ("level " + level).getBytes(StandardCharsets.UTF_8));
            message.setDelayTimeLevel(level);
            String key = producer.send(message).getMsgId();
            Json.print(Map.of("event", "level", "uniqueKey", key, "level", level));
            if (level <= LAST_LEVEL_RECEIVED) {
                awaited.put(key, "level");
            }
        }
        return awaited;
    }

    private void await(Collection<String> keys) throws InterruptedException {
        long end = System.currentTimeMillis() + LONGEST_WAIT;
        while (System.currentTimeMillis() < end && !received.containsAll(keys)) {
            Thread.sleep(100);
        }
    }
}
