package sparkmq.broker;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.body.QueryConsumeQueueResponseBody;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What differs between release lines, for 5.x. */
final class Release {
    /** Whether the broker delivers messages at any time their sender asks for. */
    static final boolean HAS_TIMERS = true;
    /** Longest topic, in characters. */
    static final int LONGEST_TOPIC = 255;

    private Release() {
    }

    static DefaultMessageStore messageStore(MessageStoreConfig storeConfig, BrokerConfig brokerConfig)
        throws Exception {
        return new DefaultMessageStore(storeConfig, new BrokerStatsManager(brokerConfig),
            (topic, queueId, offset, tagsCode, time, filter, properties) -> { }, brokerConfig,
            new ConcurrentHashMap<>());
    }

    static void deliverNothing(MessageStoreConfig config) {
        // In 5.x it is the broker that delivers delayed messages, not the store.
    }

    static NamesrvController nameServer(int port) {
        return new NamesrvController(new NamesrvConfig(), serverConfig(port));
    }

    static BrokerController broker(BrokerConfig brokerConfig, MessageStoreConfig storeConfig, int port) {
        AuthConfig authConfig = new AuthConfig();
        authConfig.setConfigName(brokerConfig.getBrokerName());
        authConfig.setClusterName(brokerConfig.getBrokerClusterName());
        authConfig.setAuthConfigPath(storeConfig.getStorePathRootDir() + "/config");
        return new BrokerController(brokerConfig, serverConfig(port), new NettyClientConfig(), storeConfig, authConfig);
    }

    /** The tags that a subscription names: all, if the text of the subscription is `*`. */
    static Map.Entry<String, Set<String>> subscribe(String tags) throws Exception {
        SubscriptionData subscription = FilterAPI.buildSubscriptionData("topic", tags);
        return Map.entry(subscription.getSubString(), subscription.getTagsSet());
    }

    private static NettyServerConfig serverConfig(int port) {
        NettyServerConfig config = new NettyServerConfig();
        config.setBindAddress(Loopback.HOST);
        config.setListenPort(port);
        return config;
    }

    static void listenOnLoopback(NamesrvController nameServer) {
        // Done by the bind address.
    }

    static void listenOnLoopback(BrokerController broker) {
        // Done by the bind address and LoopbackHaService.
    }

    static void listenOnLoopback(DefaultMessageStore messageStore) {
        // Done by LoopbackHaService.
    }

    static Long offsetByTimeUpper(DefaultMessageStore messageStore, String topic, int queueId, long timestamp) {
        return messageStore.getOffsetInQueueByTime(topic, queueId, timestamp, BoundaryType.UPPER);
    }

    /** Makes an unused queue begin at an offset, as one does that was moved here from another broker. */
    @SuppressWarnings("unchecked")
    static void beginQueueAt(DefaultMessageStore messageStore, String topic, int queueId, long offset)
        throws ReflectiveOperationException {
        // 5.4 and later have no method that gives the table.
        Object queueStore = messageStore.getQueueStore();
        Object operator = Loopback.field(queueStore.getClass(), "queueOffsetOperator").get(queueStore);
        Object table = Loopback.field(operator.getClass(), "topicQueueTable").get(operator);
        ((Map<String, Long>) table).put(topic + "-" + queueId, offset);
    }

    static PutMessageResult put(DefaultMessageStore messageStore, DirectMessage message) {
        MessageExtBrokerInner inner = new MessageExtBrokerInner();
        message.fill(inner);
        inner.setPropertiesString(message.properties());
        inner.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(message.tags()));
        return messageStore.putMessage(inner);
    }

    static void deliverAfter(Message message, long milliseconds) {
        message.setDelayTimeMs(milliseconds);
    }

    /** What the broker would put into queue and index for a record. */
    static DispatchRequest dispatchRequest(DefaultMessageStore messageStore, byte[] bytes) {
        return messageStore.getCommitLog().checkMessageAndReturnSize(ByteBuffer.wrap(bytes), false, false);
    }

    /** Units of a queue from an index on; none if there is no such queue. */
    static List<QueueUnit> queueUnits(DefaultMQAdminExt admin, String broker, String topic, int queueId, long index,
        int count) throws Exception {
        QueryConsumeQueueResponseBody answer = admin.queryConsumeQueue(broker, topic, queueId, index, count, null);
        if (answer == null || answer.getQueueData() == null) {
            return List.of();
        }
        return answer.getQueueData().stream()
            .map(unit -> new QueueUnit(unit.getPhysicOffset(), unit.getPhysicSize(), unit.getTagsCode()))
            .toList();
    }

    static QueryResult queryByUniqueKey(DefaultMQAdminExt admin, String topic, String key) throws Exception {
        return admin.getDefaultMQAdminExtImpl()
            .queryMessageByUniqKey(null, topic, key, KeyQueries.LIMIT, 0, Long.MAX_VALUE);
    }

    static void createGroup(DefaultMQAdminExt admin, String broker, String group) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        admin.createAndUpdateSubscriptionGroupConfig(broker, config);
    }

    /** Makes a consumer's group pop the messages of a topic; whether the broker can do that. */
    static boolean letPop(DefaultMQAdminExt admin, String broker, String topic, DefaultMQPushConsumer consumer)
        throws Exception {
        admin.setMessageRequestMode(broker, topic, consumer.getConsumerGroup(), MessageRequestMode.POP, 0, 5_000);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(5_000);
        return true;
    }

    /** Sends a message with a timer, and recalls it; returns its unique key, or null if the broker cannot do that. */
    static String recall(DefaultMQProducer producer, String topic) throws Exception {
        Message message = new Message(topic, "recalled".getBytes());
        deliverAfter(message, 3_600_000);
        return producer.recallMessage(topic, producer.send(message).getRecallHandle());
    }
}
