package sparkmq.broker;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A name server and a broker on loopback; or only a broker, if its settings name the name server of another one. */
final class Server implements AutoCloseable {
    private static final int READ_AND_WRITE = 6;
    private static final long MILLISECONDS_BETWEEN = 50;
    private static final int SLAVE_TURNS = 40;

    private final NamesrvController nameServer;
    private final BrokerController broker;
    private final String nameServerAddress;

    private Server(NamesrvController nameServer, BrokerController broker, String nameServerAddress) {
        this.nameServer = nameServer;
        this.broker = broker;
        this.nameServerAddress = nameServerAddress;
    }

    /**
     * Starts both on a store directory.
     *
     * @param queueCounts topics that must have at least so many queues, and can be read, whatever the store's own
     *                    configuration says
     */
    static Server start(Path store, Settings settings, Map<String, Integer> queueCounts) throws Exception {
        return start(store, settings, queueCounts, Loopback.freePort(), Loopback.freeBrokerPort());
    }

    /** The same on ports that are given, such as those of a server that runs no longer. */
    static Server start(Path store, Settings settings, Map<String, Integer> queueCounts, int nameServerPort,
        int brokerPort) throws Exception {
        BrokerConfig brokerConfig = settings.brokerConfig();
        NamesrvController nameServer = null;
        if (brokerConfig.getNamesrvAddr() == null) {
            nameServer = Release.nameServer(nameServerPort);
            nameServer.initialize();
            Release.listenOnLoopback(nameServer);
            nameServer.start();
            brokerConfig.setNamesrvAddr(Loopback.HOST + ":" + nameServerPort);
        }
        MessageStoreConfig storeConfig = settings.storeConfig(store, Loopback.freePort());
        BrokerController broker = Release.broker(settings, brokerConfig, storeConfig, brokerPort);
        if (!broker.initialize()) {
            if (nameServer != null) {
                Stop.now(nameServer::shutdown);
            }
            throw new IOException("the broker does not start on " + store);
        }
        Release.listenOnLoopback(broker);
        queueCounts.forEach((topic, queues) -> ensureTopic(broker, topic, queues));
        broker.start();
        awaitRegistration(nameServer, broker);
        return new Server(nameServer, broker, brokerConfig.getNamesrvAddr());
    }

    /** A 5.x broker finds its name server too late to register at once, and would try again after ten seconds. */
    private static void awaitRegistration(NamesrvController nameServer, BrokerController broker)
        throws InterruptedException {
        String topic = TopicValidator.RMQ_SYS_SELF_TEST_TOPIC;
        // Whoever starts a slave waits until the name server shows it.
        for (int turn = 0; nameServer == null ? turn < SLAVE_TURNS
            : nameServer.getRouteInfoManager().pickupTopicRouteData(topic) == null; turn++) {
            broker.registerBrokerAll(true, false, true);
            Thread.sleep(MILLISECONDS_BETWEEN);
        }
    }

    private static void ensureTopic(BrokerController broker, String topic, int queues) {
        TopicConfig config = broker.getTopicConfigManager().getTopicConfigTable().get(topic);
        if (config == null) {
            config = new TopicConfig(topic, queues, queues, READ_AND_WRITE);
        }
        config.setReadQueueNums(Math.max(queues, config.getReadQueueNums()));
        config.setWriteQueueNums(Math.max(queues, config.getWriteQueueNums()));
        // In 4.9.0 a topic of dead letters can only be written.
        config.setPerm(config.getPerm() | READ_AND_WRITE);
        broker.getTopicConfigManager().updateTopicConfig(config);
    }

    String nameServerAddress() {
        return nameServerAddress;
    }

    String brokerAddress() {
        return broker.getBrokerAddr();
    }

    DefaultMessageStore messageStore() {
        return (DefaultMessageStore) broker.getMessageStore();
    }

    @Override
    public void close() {
        Release.stopReviving(broker);
        Stop.now(broker::shutdown);
        if (nameServer != null) {
            Stop.now(nameServer::shutdown);
        }
    }
}
