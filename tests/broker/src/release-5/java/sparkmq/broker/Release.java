package sparkmq.broker;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What differs between release lines, for 5.x. */
final class Release {
    /** Whether the broker delivers messages at any time their sender asks for. */
    static final boolean HAS_TIMERS = true;

    private Release() {
    }

    static DefaultMessageStore messageStore(MessageStoreConfig storeConfig, BrokerConfig brokerConfig)
        throws Exception {
        MessageArrivingListener listener = (topic, queueId, offset, tagsCode, time, filter, properties) -> { };
        BrokerStatsManager statistics = new BrokerStatsManager(brokerConfig);
        // Before 5.1.2 the store does not know the topics.
        return Overload.create(DefaultMessageStore.class,
            List.of(storeConfig, statistics, listener, brokerConfig, new ConcurrentHashMap<>()),
            List.of(storeConfig, statistics, listener, brokerConfig));
    }

    static void deliverNothing(MessageStoreConfig config) {
        // In 5.x it is the broker that delivers delayed messages, not the store.
    }

    static NamesrvController nameServer(int port) {
        return new NamesrvController(new NamesrvConfig(), serverConfig(port));
    }

    static BrokerController broker(Settings settings, BrokerConfig brokerConfig, MessageStoreConfig storeConfig,
        int port) throws ReflectiveOperationException {
        BrokerController broker = newBroker(settings, brokerConfig, storeConfig, port);
        // A plug-in of the message store takes its settings from there.
        broker.getConfiguration().registerConfig(settings.properties());
        return broker;
    }

    private static BrokerController newBroker(Settings settings, BrokerConfig brokerConfig,
        MessageStoreConfig storeConfig, int port) throws ReflectiveOperationException {
        NettyServerConfig serverConfig = serverConfig(port);
        NettyClientConfig clientConfig = new NettyClientConfig();
        Class<?> authClass;
        try {
            authClass = Class.forName("org.apache.rocketmq.auth.config.AuthConfig");
        } catch (ClassNotFoundException before53) {
            return new BrokerController(brokerConfig, serverConfig, clientConfig, storeConfig);
        }
        Object authConfig = Overload.create(authClass, List.of());
        settings.apply(authConfig);
        Overload.call(authConfig, "setConfigName", brokerConfig.getBrokerName());
        Overload.call(authConfig, "setClusterName", brokerConfig.getBrokerClusterName());
        Overload.call(authConfig, "setAuthConfigPath", storeConfig.getStorePathRootDir() + "/config");
        return Overload.create(BrokerController.class,
            List.of(brokerConfig, serverConfig, clientConfig, storeConfig, authConfig));
    }

    private static NettyServerConfig serverConfig(int port) {
        NettyServerConfig config = new NettyServerConfig();
        config.setBindAddress(Loopback.HOST);
        config.setListenPort(port);
        return config;
    }

    /** The threads that revive popped messages notice a stop seconds late. */
    static void stopReviving(BrokerController broker) {
        broker.getAckMessageProcessor().setPopReviveServiceStatus(false);
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

    /** The offset by time that a second rule gives, or null before 5.1.1, which knows one rule only. */
    static Long offsetByTimeUpper(DefaultMessageStore messageStore, String topic, int queueId, long timestamp) {
        try {
            Object upper = Loopback.field(Class.forName("org.apache.rocketmq.common.BoundaryType"), "UPPER").get(null);
            return (Long) Overload.call(messageStore, "getOffsetInQueueByTime", topic, queueId, timestamp, upper);
        } catch (ClassNotFoundException before511) {
            return null;
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** Makes an unused queue begin at an offset, as one does that was moved here from another broker. */
    @SuppressWarnings("unchecked")
    static void beginQueueAt(DefaultMessageStore messageStore, String topic, int queueId, long offset)
        throws ReflectiveOperationException {
        // 5.4 and later have no method that gives the table.
        Object queueStore = messageStore.getQueueStore();
        Object operator;
        try {
            operator = Loopback.field(queueStore.getClass(), "queueOffsetOperator").get(queueStore);
        } catch (NoSuchFieldException before512) {
            operator = Loopback.field(queueStore.getClass(), "queueOffsetAssigner").get(queueStore);
        }
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
        return recall(producer, producer.send(message));
    }

    /** Recalls a message with a timer; returns its unique key, or null before 5.3.1, which cannot do that. */
    static String recall(DefaultMQProducer producer, SendResult sent) throws Exception {
        if (!Overload.exists(SendResult.class, "getRecallHandle", 0)) {
            return null;
        }
        return (String) Overload.call(producer, "recallMessage", sent.getMessageQueue().getTopic(),
            Overload.call(sent, "getRecallHandle"));
    }
}
