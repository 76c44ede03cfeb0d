package sparkmq.broker;

import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What differs between release lines, for 4.9. */
final class Release {
    /** Whether the broker delivers messages at any time their sender asks for. */
    static final boolean HAS_TIMERS = false;

    private Release() {
    }

    static DefaultMessageStore messageStore(MessageStoreConfig storeConfig, BrokerConfig brokerConfig)
        throws Exception {
        BrokerStatsManager statistics = Overload.create(BrokerStatsManager.class,
            List.of(brokerConfig.getBrokerClusterName(), false), List.of(brokerConfig.getBrokerClusterName()));
        return new DefaultMessageStore(storeConfig, statistics, (topic, queueId, offset, tagsCode, time, filter, properties) -> { },
            brokerConfig);
    }

    /** A 4.9 store delivers delayed messages when they are due, unless it is a replica's. */
    static void deliverNothing(MessageStoreConfig config) {
        config.setBrokerRole(BrokerRole.SLAVE);
    }

    static NamesrvController nameServer(int port) {
        return new NamesrvController(new NamesrvConfig(), serverConfig(port));
    }

    static BrokerController broker(Settings settings, BrokerConfig brokerConfig, MessageStoreConfig storeConfig,
        int port) {
        return new BrokerController(brokerConfig, serverConfig(port), new NettyClientConfig(), storeConfig);
    }

    private static NettyServerConfig serverConfig(int port) {
        NettyServerConfig config = new NettyServerConfig();
        config.setListenPort(port);
        return config;
    }

    static void stopReviving(BrokerController broker) {
        // 4.9 cannot pop.
    }

    static void listenOnLoopback(NamesrvController nameServer) throws ReflectiveOperationException {
        listenOnLoopback(nameServer.getRemotingServer());
    }

    static void listenOnLoopback(BrokerController broker) throws ReflectiveOperationException {
        listenOnLoopback(broker.getRemotingServer());
        listenOnLoopback(Loopback.field(BrokerController.class, "fastRemotingServer").get(broker));
        listenOnLoopback((DefaultMessageStore) broker.getMessageStore());
    }

    static void listenOnLoopback(DefaultMessageStore messageStore) throws ReflectiveOperationException {
        Object haService = messageStore.getHaService();
        Loopback.moveAcceptService(Loopback.field(haService.getClass(), "acceptSocketService").get(haService));
    }

    private static void listenOnLoopback(Object remotingServer) throws ReflectiveOperationException {
        Loopback.field(remotingServer.getClass(), "serverBootstrap")
            .set(remotingServer, new LoopbackServerBootstrap());
    }

    /** 4.9 knows one rule for offsets by time only. */
    static Long offsetByTimeUpper(DefaultMessageStore messageStore, String topic, int queueId, long timestamp) {
        return null;
    }

    /** Makes an unused queue begin at an offset, as one does that was moved here from another broker. */
    static void beginQueueAt(DefaultMessageStore messageStore, String topic, int queueId, long offset) {
        HashMap<String, Long> nextOffsets = new HashMap<>();
        messageStore.getConsumeQueueTable().forEach((name, queues) -> queues.forEach((id, queue) ->
            nextOffsets.put(name + "-" + id, queue.getMaxOffsetInQueue())));
        nextOffsets.put(topic + "-" + queueId, offset);
        messageStore.getCommitLog().setTopicQueueTable(nextOffsets);
    }

    static PutMessageResult put(DefaultMessageStore messageStore, DirectMessage message) {
        MessageExtBrokerInner inner = new MessageExtBrokerInner();
        message.fill(inner);
        inner.setPropertiesString(message.properties());
        return messageStore.putMessage(inner);
    }

    static void deliverAfter(Message message, long milliseconds) {
        throw new UnsupportedOperationException("4.9 has no timers");
    }

    /** What the broker would put into queue and index for a record. */
    static DispatchRequest dispatchRequest(DefaultMessageStore messageStore, byte[] bytes) {
        return messageStore.getCommitLog().checkMessageAndReturnSize(ByteBuffer.wrap(bytes), false);
    }

    /** 4.9 cannot pop. */
    static boolean letPop(DefaultMQAdminExt admin, String broker, String topic, DefaultMQPushConsumer consumer) {
        return false;
    }

    /** 4.9 cannot recall. */
    static String recall(DefaultMQProducer producer, String topic) {
        return null;
    }
}
