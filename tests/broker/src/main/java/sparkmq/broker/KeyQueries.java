package sparkmq.broker;

import java.lang.reflect.InvocationTargetException;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQAdminImpl;
import org.apache.rocketmq.common.message.MessageConst;

/** Asks the broker's index for every key and every unique key of a log, and for every tag if it has their entries. */
final class KeyQueries {
    /** How many messages one query asks for. */
    static final int LIMIT = 64;
    /** Below the limit, as messages with another key of the same hash take a share of it. */
    private static final int SURELY_FOUND = 48;

    private final Clients clients;
    private final Findings findings;

    KeyQueries(Clients clients, Findings findings) {
        this.clients = clients;
        this.findings = findings;
    }

    /** A key of a topic. */
    private record Key(String topic, String key) {
    }

    void run(List<LogRecord> records) throws Exception {
        MQAdminImpl index = clients.producer().getDefaultMQProducerImpl().getmQClientFactory().getMQAdminImpl();
        Map<Key, Set<Long>> keys = new LinkedHashMap<>();
        Map<Key, Set<Long>> uniqueKeys = new LinkedHashMap<>();
        Map<Key, Set<Long>> tags = new LinkedHashMap<>();
        for (LogRecord record : records) {
            if (!record.isIndexed()) {
                continue;
            }
            String topic = record.message().getTopic();
            String uniqueKey = record.message().getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
            if (uniqueKey != null) {
                add(uniqueKeys, topic, uniqueKey, record);
            }
            if (record.message().getKeys() != null) {
                for (String key : record.message().getKeys().split(MessageConst.KEY_SEPARATOR)) {
                    add(keys, topic, key, record);
                }
            }
            if (record.message().getTags() != null) {
                add(tags, topic, record.message().getTags(), record);
            }
        }
        for (Map.Entry<Key, Set<Long>> entry : keys.entrySet()) {
            Key key = entry.getKey();
            compare("key " + key.key(), key, entry.getValue(), () ->
                index.queryMessage(key.topic(), key.key(), LIMIT, 0, Long.MAX_VALUE));
        }
        for (Map.Entry<Key, Set<Long>> entry : uniqueKeys.entrySet()) {
            Key key = entry.getKey();
            // For a unique key the client gives only the oldest of the messages found.
            Set<Long> oldest = Set.of(Collections.min(entry.getValue()));
            compare("unique key " + key.key(), key, oldest, () ->
                index.queryMessageByUniqKey(key.topic(), key.key(), LIMIT, 0, Long.MAX_VALUE));
        }
        if (Overload.exists(MQAdminImpl.class, "queryMessage", 9)) {
            // From 5.4.0 on a query names the type of the index, and there are entries of tags.
            for (Map.Entry<Key, Set<Long>> entry : tags.entrySet()) {
                Key key = entry.getKey();
                compare("tag " + key.key(), key, entry.getValue(), () -> (QueryResult) Overload.call(index,
                    "queryMessage", null, key.topic(), key.key(), LIMIT, 0L, Long.MAX_VALUE, false, "T", null));
            }
            findings.count("tags", tags.size());
        }
        findings.count("keys", keys.size());
        findings.count("uniqueKeys", uniqueKeys.size());
    }

    private static void add(Map<Key, Set<Long>> keys, String topic, String key, LogRecord record) {
        if (!key.isEmpty()) {
            keys.computeIfAbsent(new Key(topic, key), unused -> new TreeSet<>()).add(record.offset());
        }
    }

    /** A query to a client. */
    private interface Query {
        QueryResult run() throws Exception;
    }

    private void compare(String what, Key key, Set<Long> expected, Query query) throws Exception {
        Set<Long> found = new TreeSet<>();
        try {
            query.run().getMessageList().forEach(message -> found.add(message.getCommitLogOffset()));
        } catch (MQClientException | InvocationTargetException noMessage) {
            found.clear();
        }
        boolean complete = expected.size() > SURELY_FOUND ? found.size() >= SURELY_FOUND : found.containsAll(expected);
        if (!complete) {
            findings.problem(what + " of " + key.topic() + " finds " + found + ", the log has " + expected);
        }
    }
}
