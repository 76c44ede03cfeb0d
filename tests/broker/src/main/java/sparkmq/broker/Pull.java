package sparkmq.broker;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** For each line of standard input, pulls all messages of a topic, with a thread for each queue, and counts them. */
final class Pull implements Command {
    private static final long MILLISECONDS_TO_ANSWER = 15_000;

    /** What one queue has. */
    private record Total(long messages, long bodyBytes) {
    }

    @Override
    public int run(Arguments arguments) throws Exception {
        String topic = arguments.text("topic");
        int most = arguments.number("most");
        DefaultMQPullConsumer consumer = Clients.configure(
            new DefaultMQPullConsumer("GID_pull"), arguments.text("name-server"), "pull");
        consumer.setConsumerPullTimeoutMillis(MILLISECONDS_TO_ANSWER);
        consumer.start();
        Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(topic);
        ExecutorService threads = Executors.newFixedThreadPool(queues.size());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            List<Callable<Total>> reads = new ArrayList<>();
            queues.forEach(queue -> reads.add(() -> read(consumer, queue, most)));
            long messages = 0;
            long bodyBytes = 0;
            for (Future<Total> total : threads.invokeAll(reads)) {
                messages += total.get().messages();
                bodyBytes += total.get().bodyBytes();
            }
            Json.print(Map.of("messages", messages, "bodyBytes", bodyBytes));
        }
        Stop.now(consumer::shutdown);
        return 0;
    }

    private static Total read(DefaultMQPullConsumer consumer, MessageQueue queue, int most) throws Exception {
        long messages = 0;
        long bodyBytes = 0;
        long offset = consumer.minOffset(queue);
        long stop = consumer.maxOffset(queue);
        while (offset < stop) {
            PullResult result = consumer.pull(queue, "*", offset, most);
            if (result.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException(queue + " at " + offset + ": " + result.getPullStatus());
            }
            for (MessageExt message : result.getMsgFoundList()) {
                messages++;
                bodyBytes += message.getBody().length;
            }
            offset = result.getNextBeginOffset();
        }
        return new Total(messages, bodyBytes);
    }
}
