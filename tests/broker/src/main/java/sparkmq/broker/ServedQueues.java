package sparkmq.broker;

import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** The queues that a log makes: for each the messages that consumers must get, by queue offset. */
final class ServedQueues {
    private final Map<Queue, TreeMap<Long, LogRecord>> queues =
        new TreeMap<>(Comparator.comparing(Queue::topic).thenComparing(Queue::queueId));
    private final long logEnd;

    ServedQueues(List<LogRecord> records) {
        for (LogRecord record : records) {
            if (record.isInQueue()) {
                queues.computeIfAbsent(new Queue(record.message().getTopic(), record.message().getQueueId()),
                    queue -> new TreeMap<>()).put(record.queueOffset(), record);
            }
        }
        LogRecord last = records.isEmpty() ? null : records.get(records.size() - 1);
        logEnd = last == null ? 0 : last.offset() + last.size();
    }

    /** A queue of a topic. */
    record Queue(String topic, int queueId) {
        @Override
        public String toString() {
            return topic + "/" + queueId;
        }
    }

    Map<Queue, TreeMap<Long, LogRecord>> queues() {
        return queues;
    }

    /** End of the last message of the log; what is behind it was written later. */
    long logEnd() {
        return logEnd;
    }

    /** For each topic how many queues it needs at least. */
    Map<String, Integer> queueCounts() {
        Map<String, Integer> counts = new TreeMap<>();
        queues.keySet().forEach(queue -> counts.merge(queue.topic(), queue.queueId() + 1, Math::max));
        return counts;
    }
}
