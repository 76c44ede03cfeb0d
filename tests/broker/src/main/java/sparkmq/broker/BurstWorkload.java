package sparkmq.broker;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Several producers that send batches as fast as they can, until they are done or the broker is gone. */
final class BurstWorkload {
    private static final int PRODUCERS = 4;
    private static final int BATCH = 10;

    private final String nameServer;

    BurstWorkload(String nameServer) {
        this.nameServer = nameServer;
    }

    int run(int seed, int count) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(PRODUCERS);
        List<Callable<Integer>> tasks = new ArrayList<>();
        for (int i = 0; i < PRODUCERS; i++) {
            int number = i;
            tasks.add(() -> send(number, seed + number, count / PRODUCERS));
        }
        int sent = 0;
        for (Future<Integer> task : executor.invokeAll(tasks)) {
            sent += task.get();
        }
        executor.shutdown();
        return sent;
    }

    private int send(int number, int seed, int count) throws Exception {
        DefaultMQProducer producer = Clients.configure(
            new DefaultMQProducer("producer-burst"), nameServer, "producer-burst" + number);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        MessageMaker maker = new MessageMaker(seed);
        int sent = 0;
        try {
            while (sent < count) {
                String topic = MessageMaker.topics().get(maker.nextInt(MessageMaker.topics().size()));
                List<Message> batch = new ArrayList<>();
                for (int i = 0; i < BATCH; i++) {
                    batch.add(maker.next(topic));
                }
                producer.send(batch);
                sent += batch.size();
            }
        } catch (Exception brokerGone) {
            return sent;
        } finally {
            Stop.now(producer::shutdown);
        }
        return sent;
    }
}
