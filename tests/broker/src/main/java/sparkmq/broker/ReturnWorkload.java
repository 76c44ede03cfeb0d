package sparkmq.broker;

import java.nio.charset.StandardCharsets;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that a consumer returns: some until they are dead, some once; some still wait when it stops. */
final class ReturnWorkload {
    static final String TOPIC = "ReturnDemo";
    static final String GROUP = "GID_returning";
    private static final String FATE = "fate";
    private static final int RETRIES = 2;
    private static final int MESSAGES_PER_FATE = 2;
    private static final int ONE_SECOND = 1;
    private static final int FIVE_SECONDS = 2;
    private static final int TWO_HOURS = 18;
    private static final int NEVER_AGAIN = -1;
    private static final long LONGEST_WAIT = 60_000;
    private static final long TIME_TO_SEND_BACK = 1_000;
    private static final long TIME_TO_DELIVER = 6_500;

    /** What becomes of a message, and the times the consumer sees it. */
    private enum Fate {
        CONSUMED(1), RETURNED_ONCE(2), WAITING(1), READY(1), DEAD_AT_ONCE(1), DEAD(3);

        private final int attempts;

        Fate(int attempts) {
            this.attempts = attempts;
        }
    }

    private final String nameServer;
    private final DefaultMQProducer producer;
    private final AtomicInteger attempts = new AtomicInteger();

    ReturnWorkload(String nameServer, DefaultMQProducer producer) {
        this.nameServer = nameServer;
        this.producer = producer;
    }

    void run() throws Exception {
        int wanted = send(EnumSet.complementOf(EnumSet.of(Fate.READY)));
        DefaultMQPushConsumer consumer = Clients.configure(new DefaultMQPushConsumer(GROUP), nameServer, "returning");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(RETRIES);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            consume(messages.get(0), context));
        consumer.start();
        await(wanted);
        // The consumer has to end before these are due again: they are sent last.
        await(wanted + send(EnumSet.of(Fate.READY)));
        Thread.sleep(TIME_TO_SEND_BACK);
        Stop.now(consumer::shutdown);
        Thread.sleep(TIME_TO_DELIVER);
    }

    /** Sends messages of each fate; returns how often the consumer sees them. */
    private int send(Set<Fate> fates) throws Exception {
        int wanted = 0;
        for (int i = 0; i < MESSAGES_PER_FATE; i++) {
            for (Fate fate : fates) {
                Message message = new Message(TOPIC, fate.name().getBytes(StandardCharsets.UTF_8));
                message.putUserProperty(FATE, fate.name());
                String key = producer.send(message).getMsgId();
                Json.print(Map.of("event", "sent", "topic", TOPIC, "group", GROUP, "uniqueKey", key,
                    "fate", fate.name()));
                wanted += fate.attempts;
            }
        }
        return wanted;
    }

    private void await(int wanted) throws InterruptedException {
        long end = System.currentTimeMillis() + LONGEST_WAIT;
        while (System.currentTimeMillis() < end && attempts.get() < wanted) {
            Thread.sleep(100);
        }
    }

    private ConsumeConcurrentlyStatus consume(MessageExt message, ConsumeConcurrentlyContext context) {
        Fate fate = Fate.valueOf(message.getUserProperty(FATE));
        int times = message.getReconsumeTimes();
        if (fate == Fate.READY && times > 0) {
            return null;
        }
        Json.print(Map.of("event", "consumed", "topic", TOPIC, "group", GROUP, "uniqueKey", message.getMsgId(),
            "fate", fate.name(), "reconsumeTimes", times));
        attempts.incrementAndGet();
        if (fate == Fate.CONSUMED || fate == Fate.RETURNED_ONCE && times == 1) {
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
        context.setDelayLevelWhenNextConsume(switch (fate) {
            case WAITING -> TWO_HOURS;
            case READY -> FIVE_SECONDS;
            case DEAD_AT_ONCE -> NEVER_AGAIN;
            default -> ONE_SECOND;
        });
        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
    }
}
