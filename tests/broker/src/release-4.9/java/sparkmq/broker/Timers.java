package sparkmq.broker;

import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** 4.9 has no timers. */
final class Timers {
    private Timers() {
    }

    static Map<String, String> send(DefaultMQProducer producer) {
        return Map.of();
    }
}
