package sparkmq.broker;

import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A group that pops a message, keeps it too long, and gets it again; nothing with brokers that cannot pop. */
final class PopWorkload implements AutoCloseable {
    private static final String TOPIC = "PopDemo";
    private static final String GROUP = "GID_popping";
    private static final long TOO_LONG = 9_000;
    private static final long LONGEST_WAIT = 30;

    private final DefaultMQPushConsumer consumer;
    private final CountDownLatch again = new CountDownLatch(1);

    private PopWorkload(DefaultMQPushConsumer consumer) {
        this.consumer = consumer;
    }

    static PopWorkload start(String nameServer, Clients clients, String broker) throws Exception {
        DefaultMQPushConsumer consumer = Clients.configure(new DefaultMQPushConsumer(GROUP), nameServer, "popping");
        if (!Release.letPop(clients.admin(), broker, TOPIC, consumer)) {
            return new PopWorkload(null);
        }
        PopWorkload workload = new PopWorkload(consumer);
        String key = clients.producer().send(new Message(TOPIC, "pop".getBytes())).getMsgId();
        Json.print(Map.of("event", "sent", "topic", TOPIC, "group", GROUP, "uniqueKey", key, "fate", "POPPED_TWICE"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            workload.consume(messages.get(0)));
        consumer.start();
        return workload;
    }

    private ConsumeConcurrentlyStatus consume(MessageExt message) {
        Json.print(Map.of("event", "consumed", "topic", TOPIC, "group", GROUP, "uniqueKey", message.getMsgId(),
            "fate", "POPPED_TWICE", "reconsumeTimes", message.getReconsumeTimes()));
        if (message.getReconsumeTimes() > 0) {
            again.countDown();
        } else {
            try {
                Thread.sleep(TOO_LONG);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    /** Waits until the message came again. */
    void await() throws InterruptedException {
        if (consumer != null && again.await(LONGEST_WAIT, TimeUnit.SECONDS)) {
            Thread.sleep(500);
        }
    }

    @Override
    public void close() {
        if (consumer != null) {
            Stop.now(consumer::shutdown);
        }
    }
}
