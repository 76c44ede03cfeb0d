package sparkmq.broker;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages whose number decides their queue, so that a second run can take the places of a first one. */
final class SequenceWorkload {
    private final DefaultMQProducer producer;

    SequenceWorkload(DefaultMQProducer producer) {
        this.producer = producer;
    }

    /** Sends the messages numbered from {@code from}; number n goes to queue n modulo {@code queues}. */
    int run(String topic, int queues, int from, int count, int bodyLength) throws Exception {
        for (int number = from; number < from + count; number++) {
            String body = ("message " + number + " ").repeat(bodyLength).substring(0, bodyLength + number % 7);
            Message message = new Message(topic, "Tag" + number % 3, "s" + number + " s" + number / 10,
                body.getBytes(StandardCharsets.UTF_8));
            producer.send(message, new MessageQueue(topic, "broker", number % queues));
        }
        return count;
    }
}
