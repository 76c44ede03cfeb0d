package sparkmq.broker;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumes every queue from its minimum to its maximum and compares with the log, units included. */
final class QueueCheck {
    private static final int BATCH = 32;

    private final Server server;
    private final Clients clients;
    private final Findings findings;

    QueueCheck(Server server, Clients clients, Findings findings) {
        this.server = server;
        this.clients = clients;
        this.findings = findings;
    }

    void run(ServedQueues expected) throws Exception {
        for (Map.Entry<ServedQueues.Queue, TreeMap<Long, LogRecord>> entry : expected.queues().entrySet()) {
            findings.count("queues", 1);
            checkMessages(entry.getKey(), entry.getValue(), expected.logEnd());
            checkUnits(entry.getKey(), entry.getValue());
        }
    }

    private void checkMessages(ServedQueues.Queue queue, TreeMap<Long, LogRecord> expected, long logEnd)
        throws Exception {
        MessageQueue messageQueue = new MessageQueue(queue.topic(), "broker", queue.queueId());
        long min = clients.consumer().minOffset(messageQueue);
        long max = clients.consumer().maxOffset(messageQueue);
        if (min > expected.firstKey() || max < expected.lastKey() + 1) {
            findings.problem(queue + " goes from " + min + " to " + max + ", the log has " + expected.firstKey()
                + " to " + (expected.lastKey() + 1));
        }
        TreeMap<Long, LogRecord> missing = new TreeMap<>(expected);
        checkUnitsBefore(queue, min, expected.firstKey());
        // Not from the minimum: where a queue began above 0 there are blank units, and a broker that meets one of them
        // skips the messages behind it.
        long offset = Math.max(min, expected.firstKey());
        while (offset < max) {
            PullResult result = clients.consumer().pull(messageQueue, "*", offset, BATCH);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    checkMessage(queue, message, missing.remove(message.getQueueOffset()), logEnd);
                }
            }
            if (result.getNextBeginOffset() <= offset) {
                findings.problem(queue + " answers " + result.getPullStatus() + " at " + offset);
                break;
            }
            offset = result.getNextBeginOffset();
        }
        missing.forEach((queueOffset, record) ->
            findings.problem(queue + " does not serve " + queueOffset + ", the message at " + record.offset()));
    }

    private void checkMessage(ServedQueues.Queue queue, MessageExt served, LogRecord expected, long logEnd) {
        String place = queue + " at " + served.getQueueOffset();
        if (expected == null) {
            // A running broker delivers what is due: retries, delays, transactions.
            if (served.getCommitLogOffset() < logEnd) {
                findings.problem(place + " serves the message at " + served.getCommitLogOffset() + " too much");
            }
            return;
        }
        findings.count("consumed", 1);
        if (served.getCommitLogOffset() != expected.offset()) {
            findings.problem(place + " serves the message at " + served.getCommitLogOffset() + " instead of "
                + expected.offset());
        } else if (served.getStoreSize() != expected.size()
            || !Digest.md5(served.getBody()).equals(Digest.md5(expected.message().getBody()))) {
            findings.problem(place + " serves other bytes than the log has at " + expected.offset());
        }
    }

    private void checkUnits(ServedQueues.Queue queue, TreeMap<Long, LogRecord> expected) throws Exception {
        long offset = expected.firstKey();
        while (offset <= expected.lastKey()) {
            List<QueueUnit> units = Protocol.queueUnits(clients.admin(), server.brokerAddress(), queue.topic(),
                queue.queueId(), offset, BATCH);
            if (units.isEmpty()) {
                findings.problem(queue + " has no unit " + offset);
                return;
            }
            for (QueueUnit unit : units) {
                LogRecord record = expected.get(offset);
                if (record != null && !unit.equals(unit(record))) {
                    findings.problem(queue + " has " + unit + " as unit " + offset + " instead of " + unit(record));
                }
                offset++;
            }
        }
    }

    /** Units before the first message may be blank or point to messages that are gone. */
    private void checkUnitsBefore(ServedQueues.Queue queue, long min, long first) throws Exception {
        long logBegin = server.messageStore().getMinPhyOffset();
        long offset = min;
        while (offset < first) {
            List<QueueUnit> units = Protocol.queueUnits(clients.admin(), server.brokerAddress(), queue.topic(),
                queue.queueId(), offset, (int) Math.min(BATCH, first - offset));
            if (units.isEmpty()) {
                return;
            }
            for (QueueUnit unit : units) {
                if (!unit.isBlank() && unit.offset() >= logBegin) {
                    findings.problem(queue + " has " + unit + " before its first message");
                }
            }
            offset += units.size();
        }
    }

    private QueueUnit unit(LogRecord record) {
        long tagsCode = Release.dispatchRequest(server.messageStore(), record.bytes()).getTagsCode();
        return new QueueUnit(record.offset(), record.size(), tagsCode);
    }
}
