package sparkmq.broker;

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** Messages that their consumer fails on, until the broker puts them among the dead letters. */
final class RetryWorkload implements AutoCloseable {
    private static final String GROUP = "GID_failing";
    private static final String TOPIC = "RetryDemo";
    private static final int MESSAGES = 5;
    private static final int RETRIES = 2;
    private static final int ONE_SECOND_LEVEL = 1;
    private static final long LONGEST_WAIT = 40_000;
    private static final long TIME_TO_SEND_BACK = 1_000;

    private final DefaultMQPushConsumer consumer;
    private final DefaultMQProducer producer;
    private final MessageMaker maker;
    private final AtomicInteger attempts = new AtomicInteger();

    RetryWorkload(String nameServer, DefaultMQProducer producer, MessageMaker maker) throws MQClientException {
        this.producer = producer;
        this.maker = maker;
        consumer = Clients.configure(new DefaultMQPushConsumer(GROUP), nameServer, "failing");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(RETRIES);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            attempts.addAndGet(messages.size());
            context.setDelayLevelWhenNextConsume(ONE_SECOND_LEVEL);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
    }

    int send() throws Exception {
        for (int i = 0; i < MESSAGES; i++) {
            producer.send(maker.next(TOPIC));
        }
        return MESSAGES;
    }

    /** Waits until the last attempt of the last message has failed. */
    void await() throws InterruptedException {
        long end = System.currentTimeMillis() + LONGEST_WAIT;
        while (System.currentTimeMillis() < end && attempts.get() < MESSAGES * (1 + RETRIES)) {
            Thread.sleep(100);
        }
        Thread.sleep(TIME_TO_SEND_BACK);
    }

    @Override
    public void close() {
        Stop.now(consumer::shutdown);
    }
}
