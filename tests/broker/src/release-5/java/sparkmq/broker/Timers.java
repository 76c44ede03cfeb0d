package sparkmq.broker;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Messages with timers: delivered, rolled and delivered, rolled and waiting, and recalled. */
final class Timers {
    private static final long HOUR = 3_600_000;

    private Timers() {
    }

    /** Sends them; returns the keys of those that are received soon. */
    static Map<String, String> send(DefaultMQProducer producer) throws Exception {
        Map<String, String> awaited = new HashMap<>();
        for (int i = 0; i < 2; i++) {
            awaited.put(send(producer, "timer", 2_000).getMsgId(), "timer");
            awaited.put(send(producer, "rolled", 9_000).getMsgId(), "rolled");
            send(producer, "waiting", HOUR);
            for (long delay : new long[] {8_000, HOUR}) {
                SendResult result = send(producer, "recalled", delay);
                Release.recall(producer, result);
            }
        }
        return awaited;
    }

    private static SendResult send(DefaultMQProducer producer, String event, long delay) throws Exception {
        Message message = new Message(Delay.TOPIC, (event + delay).getBytes(StandardCharsets.UTF_8));
        message.setDelayTimeMs(delay);
        SendResult result = producer.send(message);
        Json.print(Map.of("event", event, "uniqueKey", result.getMsgId(), "delay", delay));
        return result;
    }
}
