package sparkmq.broker;

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactions that are committed, rolled back, decided when the broker asks, given up on, and left open. */
final class TransactionWorkload implements TransactionListener, AutoCloseable {
    private static final String FATE = "fate";
    private static final String FATE_WHEN_ASKED = "fateWhenAsked";
    private static final int PER_FATE = 4;
    private static final int CHECKS_BEFORE_GIVING_UP = 2;
    private static final long LONGEST_WAIT = 40_000;

    private final TransactionMQProducer producer;
    private final MessageMaker maker;
    private final AtomicInteger decided = new AtomicInteger();
    private final AtomicInteger undecided = new AtomicInteger();

    TransactionWorkload(String nameServer, MessageMaker maker) throws MQClientException {
        this.maker = maker;
        producer = Clients.configure(new TransactionMQProducer("producer-transactions"), nameServer, "transactions");
        producer.setTransactionListener(this);
        producer.start();
    }

    int send() throws MQClientException {
        int sent = 0;
        for (int i = 0; i < PER_FATE; i++) {
            send(LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.UNKNOW);
            send(LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.UNKNOW);
            send(LocalTransactionState.UNKNOW, LocalTransactionState.COMMIT_MESSAGE);
            send(LocalTransactionState.UNKNOW, LocalTransactionState.ROLLBACK_MESSAGE);
            send(LocalTransactionState.UNKNOW, LocalTransactionState.UNKNOW);
            sent += 5;
        }
        return sent;
    }

    /** Waits until the broker has asked for every open transaction, and for some of them until it gives up. */
    void await() throws InterruptedException {
        long end = System.currentTimeMillis() + LONGEST_WAIT;
        while (System.currentTimeMillis() < end
            && (decided.get() < 2 * PER_FATE || undecided.get() < CHECKS_BEFORE_GIVING_UP * PER_FATE)) {
            Thread.sleep(100);
        }
    }

    /** Sends transactions that stay half if the broker stops before it asks for them. */
    int leaveHalf(int count) throws MQClientException {
        for (int i = 0; i < count; i++) {
            send(LocalTransactionState.UNKNOW, LocalTransactionState.UNKNOW);
        }
        return count;
    }

    private void send(LocalTransactionState fate, LocalTransactionState fateWhenAsked) throws MQClientException {
        Message message = maker.next("TransactionDemo");
        message.putUserProperty(FATE, fate.name());
        message.putUserProperty(FATE_WHEN_ASKED, fateWhenAsked.name());
        producer.sendMessageInTransaction(message, null);
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return LocalTransactionState.valueOf(message.getUserProperty(FATE));
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        LocalTransactionState fate = LocalTransactionState.valueOf(message.getUserProperty(FATE_WHEN_ASKED));
        (fate == LocalTransactionState.UNKNOW ? undecided : decided).incrementAndGet();
        return fate;
    }

    @Override
    public void close() {
        Stop.now(producer::shutdown);
    }
}
