package sparkmq.broker;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A producer, a producer of transactions and a consumer, all with message trace. */
final class TraceWorkload {
    static final String TOPIC = "TraceDemo";
    private static final String PRODUCER = "PID_traced";
    private static final String TRANSACTIONS = "PID_traced_transactions";
    static final String GROUP = "GID_traced";
    private static final int MESSAGES = 4;
    private static final int ONE_SECOND = 1;
    private static final long LONGEST_WAIT = 20_000;
    /** A trace dispatcher sends what it has every second, and a shutdown can lose the rest. */
    private static final long FLUSHED = 3_000;

    private final String nameServer;
    private final AtomicInteger consumed = new AtomicInteger();

    TraceWorkload(String nameServer) {
        this.nameServer = nameServer;
    }

    void run() throws Exception {
        // Clients of 5.3.3 trace recalls only with this.
        System.setProperty("com.rocketmq.recall.default.trace.enable", "true");
        DefaultMQProducer producer = Clients.configure(
            new DefaultMQProducer(PRODUCER, null, true, null), nameServer, "traced-producer");
        producer.start();
        for (int i = 0; i < MESSAGES; i++) {
            Message message = new Message(TOPIC, i % 2 == 0 ? "TagA" : null, i % 2 == 0 ? "ORD-" + i + " k" + i : null,
                ("body " + i).getBytes(StandardCharsets.UTF_8));
            said("Pub", PRODUCER, producer.send(message).getMsgId(), Map.of("topic", TOPIC));
        }
        String recalled = Release.recall(producer, TOPIC);
        if (recalled != null) {
            said("Recall", PRODUCER, recalled, Map.of("topic", TOPIC));
        }
        TransactionMQProducer transactions = transaction();
        DefaultMQPushConsumer consumer = consume();
        Thread.sleep(FLUSHED);
        Stop.now(consumer::shutdown);
        Stop.now(transactions::shutdown);
        Stop.now(producer::shutdown);
    }

    private TransactionMQProducer transaction() throws Exception {
        TransactionMQProducer producer = Clients.configure(
            new TransactionMQProducer(null, TRANSACTIONS, null, true, null), nameServer, "traced-transactions");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        Message message = new Message(TOPIC, "half".getBytes(StandardCharsets.UTF_8));
        String key = producer.sendMessageInTransaction(message, null).getMsgId();
        said("EndTransaction", TRANSACTIONS, key, Map.of("topic", TOPIC, "state", "COMMIT_MESSAGE"));
        return producer;
    }

    /** Consumes all messages; the first time, it returns those with a tag. */
    private DefaultMQPushConsumer consume() throws Exception {
        DefaultMQPushConsumer consumer = Clients.configure(
            new DefaultMQPushConsumer(GROUP, true, null), nameServer, "traced-consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            boolean returns = message.getTags() != null && message.getReconsumeTimes() == 0;
            said("Sub", GROUP, message.getMsgId(),
                Map.of("success", !returns, "reconsumeTimes", message.getReconsumeTimes()));
            consumed.incrementAndGet();
            context.setDelayLevelWhenNextConsume(ONE_SECOND);
            return returns ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long end = System.currentTimeMillis() + LONGEST_WAIT;
        while (System.currentTimeMillis() < end && consumed.get() < MESSAGES + 1 + MESSAGES / 2) {
            Thread.sleep(100);
        }
        return consumer;
    }

    private static void said(String type, String group, String key, Map<String, Object> more) {
        Map<String, Object> line = new java.util.LinkedHashMap<>(more);
        line.put("event", "trace");
        line.put("type", type);
        line.put("group", group);
        line.put("uniqueKey", key);
        Json.print(line);
    }
}
