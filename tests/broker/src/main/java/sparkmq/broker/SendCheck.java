package sparkmq.broker;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.Validators;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends new messages behind the old ones and reads them back. */
final class SendCheck {
    private static final String NEW_TOPIC = "SendCheckTopic";
    private static final int QUEUES = 12;
    private static final int MESSAGES_PER_QUEUE = 3;
    private static final int ATTEMPTS = 2_000;
    private static final long MILLISECONDS_BETWEEN = 5;

    private final Server server;
    private final Clients clients;
    private final Findings findings;

    SendCheck(Server server, Clients clients, Findings findings) {
        this.server = server;
        this.clients = clients;
        this.findings = findings;
    }

    void run(ServedQueues expected, boolean index) throws Exception {
        clients.admin().createAndUpdateTopicConfig(server.brokerAddress(), new TopicConfig(NEW_TOPIC, 2, 2, 6));
        clients.awaitTopics(List.of(NEW_TOPIC));
        for (Map.Entry<ServedQueues.Queue, Long> entry : targets(expected).entrySet()) {
            checkQueue(entry.getKey(), entry.getValue(), index);
        }
    }

    /** Queues to send to, each with its next offset as far as the log tells. */
    private static Map<ServedQueues.Queue, Long> targets(ServedQueues expected) {
        List<ServedQueues.Queue> usable = new ArrayList<>();
        for (ServedQueues.Queue queue : expected.queues().keySet()) {
            if (isOrdinary(queue.topic())) {
                usable.add(queue);
            }
        }
        Map<ServedQueues.Queue, Long> targets = new LinkedHashMap<>();
        int step = Math.max(1, usable.size() / QUEUES);
        for (int i = 0; i < usable.size(); i += step) {
            targets.put(usable.get(i), expected.queues().get(usable.get(i)).lastKey() + 1);
        }
        targets.put(new ServedQueues.Queue(NEW_TOPIC, 1), 0L);
        return targets;
    }

    private static boolean isOrdinary(String topic) {
        try {
            Validators.checkTopic(topic);
            Validators.isSystemTopic(topic);
            Validators.isNotAllowedSendTopic(topic);
        } catch (MQClientException refused) {
            return false;
        }
        boolean derived = topic.startsWith(MixAll.RETRY_GROUP_TOPIC_PREFIX)
            || topic.startsWith(MixAll.DLQ_GROUP_TOPIC_PREFIX);
        return !derived && !topic.startsWith("rmq_sys_") && !topic.startsWith("RMQ_SYS_");
    }

    private void checkQueue(ServedQueues.Queue queue, long nextOffset, boolean index) throws Exception {
        MessageQueue messageQueue = new MessageQueue(queue.topic(), "broker", queue.queueId());
        long lowest = nextOffset;
        for (int i = 0; i < MESSAGES_PER_QUEUE; i++) {
            String key = "new" + i;
            byte[] body = ("new message " + i + " for " + queue).getBytes(StandardCharsets.UTF_8);
            SendResult sent;
            try {
                sent = clients.producer().send(new Message(queue.topic(), "New", key, body), messageQueue);
            } catch (MQClientException refused) {
                findings.problem(queue + " takes no message: " + refused.getMessage());
                return;
            }
            // Messages that were due may have come in between, so it can be more than expected, but never less.
            if (sent.getQueueOffset() < lowest) {
                findings.problem(queue + " gave a new message offset " + sent.getQueueOffset() + ", used before; "
                    + lowest + " is free");
            }
            lowest = sent.getQueueOffset() + 1;
            findings.count("sent", 1);
            MessageExt read = readBack(messageQueue, sent.getQueueOffset());
            if (read == null || !Arrays.equals(read.getBody(), body)) {
                findings.problem(queue + " does not serve the new message at " + sent.getQueueOffset());
            } else if (index) {
                checkKey(queue, key, sent);
            }
        }
        checkContiguous(queue, messageQueue, nextOffset, lowest);
    }

    private MessageExt readBack(MessageQueue queue, long offset) throws Exception {
        for (int i = 0; i < ATTEMPTS; i++) {
            PullResult result = clients.consumer().pull(queue, "New", offset, 1);
            if (result.getPullStatus() == PullStatus.FOUND) {
                MessageExt message = result.getMsgFoundList().get(0);
                return message.getQueueOffset() == offset ? message : null;
            }
            Thread.sleep(MILLISECONDS_BETWEEN);
        }
        return null;
    }

    private void checkKey(ServedQueues.Queue queue, String key, SendResult sent) throws Exception {
        for (int i = 0; i < ATTEMPTS; i++) {
            try {
                boolean found = clients.admin().queryMessage(queue.topic(), key, KeyQueries.LIMIT, 0, Long.MAX_VALUE)
                    .getMessageList().stream().anyMatch(message -> sent.getMsgId().equals(message.getMsgId()));
                if (found) {
                    return;
                }
            } catch (MQClientException notYet) {
                Thread.sleep(MILLISECONDS_BETWEEN);
            }
        }
        findings.problem(queue + ": key " + key + " does not find the new message at " + sent.getQueueOffset());
    }

    /** Every offset from the last old message to the last new one must serve a message of its own. */
    private void checkContiguous(ServedQueues.Queue queue, MessageQueue messageQueue, long from, long to)
        throws Exception {
        Map<Long, Long> places = new TreeMap<>();
        long offset = from;
        while (offset < to) {
            PullResult result = clients.consumer().pull(messageQueue, "*", offset, MESSAGES_PER_QUEUE);
            if (result.getPullStatus() == PullStatus.FOUND) {
                result.getMsgFoundList().forEach(message ->
                    places.put(message.getQueueOffset(), message.getCommitLogOffset()));
            }
            if (result.getNextBeginOffset() <= offset) {
                break;
            }
            offset = result.getNextBeginOffset();
        }
        for (long wanted = from; wanted < to; wanted++) {
            if (!places.containsKey(wanted)) {
                findings.problem(queue + " serves nothing at " + wanted + " after new messages came");
            }
        }
    }
}
