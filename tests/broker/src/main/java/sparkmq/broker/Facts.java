package sparkmq.broker;

import java.io.IOException;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.LongFunction;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The facts of an open store, one JSON object a line. */
final class Facts {
    private static final int KEYS_ASKED = 60;
    private static final int UNIQUE_KEYS_ASKED = 25;
    private static final long SEED = 20;

    private final DefaultMessageStore store;
    private final Path directory;
    private final PrintStream output;
    private final Random random = new Random(SEED);
    private final Map<String, Integer> byTopic = new TreeMap<>();
    private final Map<QueryKey, Long> queryKeys = new LinkedHashMap<>();
    private long earliest = Long.MAX_VALUE;
    private long latest = Long.MIN_VALUE;
    private int messages;
    private int blanks;
    private int queues;
    private int queries;
    private int gets;

    Facts(DefaultMessageStore store, Path directory, PrintStream output) {
        this.store = store;
        this.directory = directory;
        this.output = output;
    }

    /** A key under which the index is asked. */
    private record QueryKey(String topic, String key) {
    }

    /** A queue of the store. */
    private record QueueId(String topic, int queueId) {
    }

    void print() throws Exception {
        printStore();
        List<QueryKey> uniqueKeys = printLog();
        List<QueueId> queueIds = queueIds();
        for (QueueId queue : queueIds) {
            printQueue(queue);
        }
        for (QueryKey key : sample(uniqueKeys)) {
            printQueries(key);
        }
        for (QueueId queue : queueIds) {
            printGets(queue);
        }
        printSummary();
    }

    private void printStore() {
        MessageStoreConfig config = store.getMessageStoreConfig();
        Map<String, Object> fact = fact("store");
        fact.put("minPhyOffset", store.getMinPhyOffset());
        fact.put("maxPhyOffset", store.getMaxPhyOffset());
        fact.put("confirmOffset", store.getConfirmOffset());
        fact.put("mappedFileSizeCommitLog", config.getMappedFileSizeCommitLog());
        fact.put("mappedFileSizeConsumeQueue", config.getMappedFileSizeConsumeQueue());
        fact.put("maxHashSlotNum", config.getMaxHashSlotNum());
        fact.put("maxIndexNum", config.getMaxIndexNum());
        fact.put("earliestMessageTime", store.getEarliestMessageTime());
        print(fact);
    }

    /** Prints messages and fillers; returns the unique keys in the order of the log. */
    private List<QueryKey> printLog() throws IOException {
        Set<QueryKey> uniqueKeys = new LinkedHashSet<>();
        for (LogRecord record : CommitLogWalk.records(directory.resolve("commitlog"))) {
            if (record.offset() >= store.getMaxPhyOffset()) {
                break;
            }
            if (record.isBlank()) {
                printBlank(record);
            } else {
                printMessage(record, uniqueKeys);
            }
        }
        return new ArrayList<>(uniqueKeys);
    }

    private void printBlank(LogRecord record) {
        Map<String, Object> fact = fact("blank");
        fact.put("offset", record.offset());
        fact.put("size", record.size());
        print(fact);
        blanks++;
    }

    private void printMessage(LogRecord record, Set<QueryKey> uniqueKeys) {
        MessageExt message = record.message();
        String uniqueKey = message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
        Map<String, Object> fact = fact("msg");
        fact.put("offset", record.offset());
        fact.put("size", record.size());
        fact.put("magic", record.magic());
        fact.put("topic", message.getTopic());
        fact.put("queueId", message.getQueueId());
        fact.put("queueOffset", record.queueOffset());
        fact.put("physicalOffsetField", record.physicalOffsetField());
        fact.put("msgId", message.getMsgId());
        fact.put("uniqKey", uniqueKey);
        fact.put("keys", message.getKeys());
        fact.put("tags", message.getTags());
        fact.put("flag", message.getFlag());
        fact.put("sysFlag", record.systemFlag());
        fact.put("sysFlagDecoded", message.getSysFlag());
        fact.put("storeTimestamp", message.getStoreTimestamp());
        fact.put("bornTimestamp", message.getBornTimestamp());
        fact.put("bodyCRC", message.getBodyCRC());
        fact.put("bodyLenRaw", record.storedBodyLength());
        fact.put("bodyLen", message.getBody() == null ? 0 : message.getBody().length);
        fact.put("bodyMd5", Digest.md5(message.getBody()));
        fact.put("reconsumeTimes", message.getReconsumeTimes());
        fact.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        fact.put("storeHost", host(message.getStoreHost()));
        fact.put("bornHost", host(message.getBornHost()));
        fact.put("properties", new TreeMap<>(message.getProperties()));
        fact.put("recordMd5", Digest.md5(record.bytes()));
        print(fact);

        messages++;
        byTopic.merge(message.getTopic(), 1, Integer::sum);
        earliest = Math.min(earliest, message.getStoreTimestamp());
        latest = Math.max(latest, message.getStoreTimestamp());
        if (uniqueKey != null) {
            QueryKey key = new QueryKey(message.getTopic(), uniqueKey);
            uniqueKeys.add(key);
            queryKeys.putIfAbsent(key, message.getStoreTimestamp());
        }
        if (message.getKeys() != null) {
            for (String key : message.getKeys().split(MessageConst.KEY_SEPARATOR)) {
                if (!key.isEmpty()) {
                    queryKeys.putIfAbsent(new QueryKey(message.getTopic(), key), message.getStoreTimestamp());
                }
            }
        }
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + "|" + host.getPort();
    }

    /** The queues that have files; a 4.9 store makes itself an object for every delay level, used or not. */
    private List<QueueId> queueIds() {
        Map<String, ? extends Map<Integer, ?>> table = store.getConsumeQueueTable();
        List<QueueId> ids = new ArrayList<>();
        new TreeMap<>(table).forEach((topic, queueTable) -> {
            Path topicDirectory = directory.resolve("consumequeue").resolve(topic);
            for (int queueId : new TreeSet<>(queueTable.keySet())) {
                if (Files.exists(topicDirectory.resolve(Integer.toString(queueId)))) {
                    ids.add(new QueueId(topic, queueId));
                }
            }
        });
        return ids;
    }

    private void printQueue(QueueId queue) throws Exception {
        long min = store.getMinOffsetInQueue(queue.topic(), queue.queueId());
        long max = store.getMaxOffsetInQueue(queue.topic(), queue.queueId());
        boolean empty = min == max;
        Map<String, Object> fact = fact("queue");
        fact.put("topic", queue.topic());
        fact.put("queueId", queue.queueId());
        fact.put("min", min);
        fact.put("max", max);
        fact.put("firstPhy", empty ? -1 : store.getCommitLogOffsetInQueue(queue.topic(), queue.queueId(), min));
        fact.put("lastPhy", empty ? -1 : store.getCommitLogOffsetInQueue(queue.topic(), queue.queueId(), max - 1));
        fact.put("earliestMessageTime", store.getEarliestMessageTime(queue.topic(), queue.queueId()));
        List<Long> times = times(queue, min, max);
        fact.put("offsetByTime", byTime(times, time ->
            store.getOffsetInQueueByTime(queue.topic(), queue.queueId(), time)));
        Long upper = Release.offsetByTimeUpper(store, queue.topic(), queue.queueId(), 0);
        fact.put("offsetByTimeUpper", upper == null ? null : byTime(times, time ->
            Release.offsetByTimeUpper(store, queue.topic(), queue.queueId(), time)));
        print(fact);
        queues++;
    }

    /** Times before, in and after the log, and those of some of the queue's messages with their neighbours. */
    private List<Long> times(QueueId queue, long min, long max) {
        Set<Long> times = new LinkedHashSet<>(List.of(
            0L, earliest - 1, earliest, latest, latest + 1, latest + 100_000, (earliest + latest) / 2));
        for (int i = 0; i < 4; i++) {
            times.add(earliest + (long) (random.nextDouble() * (latest - earliest)));
        }
        for (int i = 0; i < 4 && min < max; i++) {
            long offset = min + (long) (random.nextDouble() * (max - min));
            long time = store.getMessageStoreTimeStamp(queue.topic(), queue.queueId(), offset);
            if (time > 0) {
                times.addAll(List.of(time, time + 1, time - 1));
            }
        }
        return new ArrayList<>(times);
    }

    private static List<List<Long>> byTime(List<Long> times, LongFunction<Long> offsetByTime) {
        List<List<Long>> pairs = new ArrayList<>();
        times.forEach(time -> pairs.add(List.of(time, offsetByTime.apply(time))));
        return pairs;
    }

    private List<QueryKey> sample(List<QueryKey> uniqueKeys) {
        Set<QueryKey> sample = new LinkedHashSet<>();
        List<QueryKey> keys = new ArrayList<>(queryKeys.keySet());
        keys.removeAll(new LinkedHashSet<>(uniqueKeys));
        pick(keys, KEYS_ASKED, sample);
        pick(uniqueKeys, UNIQUE_KEYS_ASKED, sample);
        if (!keys.isEmpty()) {
            sample.add(new QueryKey(keys.get(0).topic(), "no such key"));
        }
        return new ArrayList<>(sample);
    }

    private void pick(List<QueryKey> from, int count, Set<QueryKey> into) {
        for (int i = 0; i < count && !from.isEmpty(); i++) {
            into.add(from.get(random.nextInt(from.size())));
        }
    }

    private void printQueries(QueryKey key) {
        long middle = (earliest + latest) / 2;
        long stored = queryKeys.getOrDefault(key, middle);
        printQuery(key, 64, 0, Long.MAX_VALUE);
        printQuery(key, 3, 0, Long.MAX_VALUE);
        printQuery(key, 32, earliest, middle);
        printQuery(key, 32, middle, latest);
        printQuery(key, 10, stored - 2_000, stored + 2_000);
        printQuery(key, 10, latest + 5_000, latest + 9_000);
    }

    private void printQuery(QueryKey key, int maxNum, long begin, long end) {
        QueryMessageResult result = store.queryMessage(key.topic(), key.key(), maxNum, begin, end);
        List<Long> offsets = new ArrayList<>();
        List<String> ids = new ArrayList<>();
        for (ByteBuffer buffer : result.getMessageBufferList()) {
            MessageExt message = MessageDecoder.decode(buffer, false, false);
            if (message == null) {
                // An index entry outlived its message, and what is there now is none: that tells nothing.
                result.release();
                return;
            }
            offsets.add(message.getCommitLogOffset());
            ids.add(message.getMsgId());
        }
        Map<String, Object> fact = fact("query");
        fact.put("topic", key.topic());
        fact.put("key", key.key());
        fact.put("maxNum", maxNum);
        fact.put("begin", begin);
        fact.put("end", end);
        fact.put("offsets", offsets);
        fact.put("msgIds", ids);
        fact.put("indexLastUpdateTimestamp", result.getIndexLastUpdateTimestamp());
        fact.put("indexLastUpdatePhyoffset", result.getIndexLastUpdatePhyoffset());
        result.release();
        print(fact);
        queries++;
    }

    private void printGets(QueueId queue) throws Exception {
        long min = store.getMinOffsetInQueue(queue.topic(), queue.queueId());
        long max = store.getMaxOffsetInQueue(queue.topic(), queue.queueId());
        Set<Long> offsets = new LinkedHashSet<>(List.of(min - 1, min, (min + max) / 2, max - 1, max, max + 5));
        for (long offset : offsets) {
            printGet(queue, offset, 1);
            printGet(queue, offset, 32);
        }
    }

    private void printGet(QueueId queue, long offset, int maxNum) throws Exception {
        GetMessageResult result =
            store.getMessage("facts", queue.topic(), queue.queueId(), offset, maxNum, null);
        List<Long> offsets = new ArrayList<>();
        for (ByteBuffer buffer : result.getMessageBufferList()) {
            offsets.add(MessageDecoder.decode(buffer, false, false).getCommitLogOffset());
        }
        Map<String, Object> fact = fact("get");
        fact.put("topic", queue.topic());
        fact.put("queueId", queue.queueId());
        fact.put("offset", offset);
        fact.put("maxNum", maxNum);
        fact.put("status", result.getStatus().toString());
        fact.put("nextBeginOffset", result.getNextBeginOffset());
        fact.put("minOffset", result.getMinOffset());
        fact.put("maxOffset", result.getMaxOffset());
        fact.put("offsets", offsets);
        result.release();
        print(fact);
        gets++;
    }

    private void printSummary() {
        Map<String, Object> fact = fact("summary");
        fact.put("messages", messages);
        fact.put("blanks", blanks);
        fact.put("queues", queues);
        fact.put("queries", queries);
        fact.put("gets", gets);
        fact.put("minStoreTimestamp", earliest);
        fact.put("maxStoreTimestamp", latest);
        fact.put("byTopic", byTopic);
        print(fact);
    }

    private static Map<String, Object> fact(String kind) {
        Map<String, Object> fact = new LinkedHashMap<>();
        fact.put("t", kind);
        return fact;
    }

    private void print(Map<String, Object> fact) {
        output.println(Json.line(fact));
    }
}
