package sparkmq.broker;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactions whose half messages the broker copies for some time before it asks about them. */
final class ImmuneTransactions implements TransactionListener, AutoCloseable {
    static final String TOPIC = "ImmuneDemo";
    private static final String FATE = "fate";
    private static final String AN_HOUR = "3600";
    private static final long UNTIL_THE_BROKER_HAS_COPIED = 7_000;

    private final TransactionMQProducer producer;
    private final ExecutorService senders = Executors.newCachedThreadPool();
    private final Set<String> asked = ConcurrentHashMap.newKeySet();

    ImmuneTransactions(String nameServer) throws MQClientException {
        producer = Clients.configure(new TransactionMQProducer("producer-immune"), nameServer, "immune");
        producer.setTransactionListener(this);
        producer.start();
    }

    void send() {
        for (LocalTransactionState fate : LocalTransactionState.values()) {
            // Decided while the broker must not ask, or left open.
            senders.submit(() -> send(AN_HOUR, fate));
            // Decided when the broker asks: it may do so soon.
            senders.submit(() -> send("2", fate));
        }
    }

    private Object send(String seconds, LocalTransactionState fate) throws MQClientException {
        Message message = new Message(TOPIC, (seconds + fate).getBytes(StandardCharsets.UTF_8));
        message.putUserProperty(MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, seconds);
        message.putUserProperty(FATE, fate.name());
        return producer.sendMessageInTransaction(message, seconds);
    }

    void await() throws InterruptedException {
        senders.shutdown();
        senders.awaitTermination(30, TimeUnit.SECONDS);
        long end = System.currentTimeMillis() + 60_000;
        while (System.currentTimeMillis() < end && asked.size() < LocalTransactionState.values().length) {
            Thread.sleep(100);
        }
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object seconds) {
        String fate = message.getUserProperty(FATE);
        boolean isNow = AN_HOUR.equals(seconds);
        Json.print(Map.of("event", "transaction", "uniqueKey", MessageClientIDSetter.getUniqID(message),
            "fate", fate, "seconds", seconds));
        if (!isNow) {
            return LocalTransactionState.UNKNOW;
        }
        try {
            Thread.sleep(UNTIL_THE_BROKER_HAS_COPIED);
        } catch (InterruptedException end) {
            throw new IllegalStateException(end);
        }
        return LocalTransactionState.valueOf(fate);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        String key = MessageClientIDSetter.getUniqID(message);
        asked.add(key);
        Json.print(Map.of("event", "asked", "uniqueKey", key));
        return LocalTransactionState.valueOf(message.getUserProperty(FATE));
    }

    @Override
    public void close() {
        Stop.now(producer::shutdown);
    }
}
