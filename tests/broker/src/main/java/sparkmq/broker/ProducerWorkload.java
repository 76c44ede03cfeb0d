package sparkmq.broker;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** What an ordinary producer sends: single messages, batches, compressed bodies, delays and timers. */
final class ProducerWorkload {
    /** MixAll.MESSAGE_COMPRESS_TYPE, which 4.9.0 does not have: its clients compress in one way. */
    private static final String COMPRESSION_PROPERTY = "rocketmq.message.compressType";
    private static final List<String> COMPRESSIONS = List.of("ZLIB", "LZ4", "ZSTD");
    private static final int BIG_PER_COMPRESSION = 4;
    private static final int BATCHES = 10;
    private static final int ONE_SECOND_LEVEL = 1;
    private static final int FIVE_SECONDS_LEVEL = 2;
    private static final int TWO_HOURS_LEVEL = 18;
    private static final long HOUR = 3_600_000;
    private static final long LONGEST_DELIVERED_DELAY = 6_000;

    private final DefaultMQProducer producer;
    private final MessageMaker maker;
    private long delaysSent;

    ProducerWorkload(DefaultMQProducer producer, MessageMaker maker) {
        this.producer = producer;
        this.maker = maker;
    }

    int plain(int count) throws Exception {
        for (int i = 0; i < count; i++) {
            producer.send(maker.next());
        }
        return count;
    }

    int batches() throws Exception {
        int sent = 0;
        for (int i = 0; i < BATCHES; i++) {
            List<Message> batch = new ArrayList<>();
            int size = 2 + maker.nextInt(12);
            for (int k = 0; k < size; k++) {
                batch.add(maker.next("BatchIngest"));
            }
            producer.send(batch);
            sent += size;
        }
        return sent;
    }

    int compressed(String nameServer) throws Exception {
        int sent = 0;
        for (String compression : COMPRESSIONS) {
            // Every producer reads the property when it is made.
            System.setProperty(COMPRESSION_PROPERTY, compression);
            DefaultMQProducer compressing = Clients.configure(
                new DefaultMQProducer("producer-" + compression), nameServer, "producer-" + compression);
            compressing.start();
            for (int i = 0; i < BIG_PER_COMPRESSION; i++) {
                compressing.send(maker.nextBig("PaymentLog"));
                sent++;
            }
            Stop.now(compressing::shutdown);
        }
        System.clearProperty(COMPRESSION_PROPERTY);
        return sent;
    }

    int delays() throws Exception {
        int sent = 0;
        for (int level : new int[] {ONE_SECOND_LEVEL, FIVE_SECONDS_LEVEL, TWO_HOURS_LEVEL}) {
            for (int i = 0; i < 4; i++) {
                Message message = maker.next("DelayDemo");
                message.setDelayTimeLevel(level);
                producer.send(message);
                sent++;
            }
        }
        delaysSent = System.currentTimeMillis();
        return sent;
    }

    int timers() throws Exception {
        int sent = 0;
        for (long delay : new long[] {2_000, 4_000, HOUR}) {
            for (int i = 0; i < 3; i++) {
                Message message = maker.next("TimerDemo");
                Release.deliverAfter(message, delay);
                producer.send(message);
                sent++;
            }
        }
        return sent;
    }

    /** Waits until the short delays and timers are delivered. */
    void awaitDelays() throws InterruptedException {
        Thread.sleep(Math.max(0, delaysSent + LONGEST_DELIVERED_DELAY - System.currentTimeMillis()));
    }
}
