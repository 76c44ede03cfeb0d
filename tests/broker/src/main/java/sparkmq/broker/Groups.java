package sparkmq.broker;

import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Consumes as groups do that lag, return messages, pop them and trace them; prints what happened, an event a line.
 *
 * <p>The lines are what the consumers and producers of this program did, not what the broker stored.
 */
final class Groups implements Command {
    static final String LAG_TOPIC = "LagDemo";
    private static final String LAGGING_GROUP = "GID_lagging";
    private static final String SILENT_GROUP = "GID_silent";
    private static final int READ_AND_WRITE = 6;
    private static final int MESSAGES_PER_QUEUE = 7;
    /** Consumers that find their retry topic when they start need not wait for the next rebalance. */
    private static final Map<String, Integer> QUEUE_COUNTS = Map.of(
        LAG_TOPIC, 4, ReturnWorkload.TOPIC, 1, TraceWorkload.TOPIC, 2, "PopDemo", 1,
        "%RETRY%" + LAGGING_GROUP, 1, "%RETRY%" + SILENT_GROUP, 1,
        "%RETRY%" + ReturnWorkload.GROUP, 1, "%RETRY%" + TraceWorkload.GROUP, 1);

    @Override
    public int run(Arguments arguments) throws Exception {
        String nameServer = arguments.text("name-server");
        String broker = arguments.text("broker");
        try (Clients clients = Clients.connect(nameServer, "groups")) {
            for (Map.Entry<String, Integer> topic : QUEUE_COUNTS.entrySet()) {
                clients.admin().createAndUpdateTopicConfig(broker,
                    new TopicConfig(topic.getKey(), topic.getValue(), topic.getValue(), READ_AND_WRITE));
            }
            clients.awaitTopics(QUEUE_COUNTS.keySet());
            lag(clients, broker);
            try (PopWorkload pops = PopWorkload.start(nameServer, clients, broker)) {
                ReturnWorkload returns = new ReturnWorkload(nameServer, clients.producer());
                Future<Void> returned = Executors.newSingleThreadExecutor().submit(() -> {
                    returns.run();
                    return null;
                });
                new TraceWorkload(nameServer).run();
                pops.await();
                returned.get();
            }
        }
        return 0;
    }

    /** A group that consumed all of one queue, a part of another, nothing of a third, and has no offset in a fourth. */
    private static void lag(Clients clients, String broker) throws Exception {
        DefaultMQProducer producer = clients.producer();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(LAG_TOPIC).stream()
            .sorted().toList();
        for (MessageQueue queue : queues) {
            for (int i = 0; i < MESSAGES_PER_QUEUE; i++) {
                producer.send(new Message(LAG_TOPIC, "lag".getBytes()), queue);
            }
        }
        Protocol.createGroup(clients.admin(), broker, LAGGING_GROUP);
        long[] offsets = {MESSAGES_PER_QUEUE, 3, 0};
        for (int i = 0; i < offsets.length; i++) {
            clients.admin().updateConsumeOffset(broker, LAGGING_GROUP, queues.get(i), offsets[i]);
            Json.print(Map.of("event", "offset", "group", LAGGING_GROUP, "topic", LAG_TOPIC,
                "queueId", queues.get(i).getQueueId(), "offset", offsets[i], "sent", MESSAGES_PER_QUEUE));
        }
        Json.print(Map.of("event", "no offset", "group", LAGGING_GROUP, "topic", LAG_TOPIC,
            "queueId", queues.get(3).getQueueId(), "sent", MESSAGES_PER_QUEUE));
    }
}
