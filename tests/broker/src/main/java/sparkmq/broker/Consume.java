package sparkmq.broker;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A consumer group takes messages of a topic until it has enough, or until none has come for a while. */
final class Consume implements Command {
    private static final long LONGEST_WAIT = 60_000;
    private static final long IDLE = 4_000;
    private static final long PAUSE = 30_000;

    private final AtomicInteger taken = new AtomicInteger();
    private final AtomicLong last = new AtomicLong();
    private final Map<MessageQueue, Long> offsets = new ConcurrentHashMap<>();

    @Override
    public int run(Arguments arguments) throws Exception {
        int count = arguments.number("count");
        DefaultMQPushConsumer consumer = Clients.configure(
            new DefaultMQPushConsumer(arguments.text("group")), arguments.text("name-server"), "consume");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.subscribe(arguments.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            context.setSuspendCurrentQueueTimeMillis(PAUSE);
            return take(messages, context.getMessageQueue(), count);
        });
        long end = System.currentTimeMillis() + LONGEST_WAIT;
        consumer.start();
        while (System.currentTimeMillis() < end && taken.get() < count && !isIdle()) {
            Thread.sleep(50);
        }
        writeOffsets(consumer.getDefaultMQPushConsumerImpl().getOffsetStore(), end);
        Stop.now(consumer::shutdown);
        return 0;
    }

    private boolean isIdle() {
        return last.get() > 0 && System.currentTimeMillis() > last.get() + IDLE;
    }

    /**
     * Writes the offsets of what was taken, and waits for the broker's answers.
     *
     * <p>A consumer that stops writes them as well, but without an answer: the connection can end before they arrive.
     */
    private void writeOffsets(OffsetStore store, long end) throws Exception {
        for (Map.Entry<MessageQueue, Long> taken : offsets.entrySet()) {
            MessageQueue queue = taken.getKey();
            while (store.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY) < taken.getValue()
                && System.currentTimeMillis() < end) {
                Thread.sleep(1);
            }
            store.updateConsumeOffsetToBroker(queue, taken.getValue(), false);
        }
    }

    /** Takes a message, unless there are enough. */
    private synchronized ConsumeOrderlyStatus take(List<MessageExt> messages, MessageQueue queue, int count) {
        if (taken.get() + messages.size() > count) {
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        }
        for (MessageExt message : messages) {
            Json.print(Map.of("topic", message.getTopic(), "queueId", message.getQueueId(),
                "queueOffset", message.getQueueOffset(), "uniqKey", message.getMsgId(),
                "properties", message.getProperties(), "body", new String(message.getBody(), StandardCharsets.UTF_8)));
            offsets.put(queue, message.getQueueOffset() + 1);
        }
        taken.addAndGet(messages.size());
        last.set(System.currentTimeMillis());
        return ConsumeOrderlyStatus.SUCCESS;
    }
}
