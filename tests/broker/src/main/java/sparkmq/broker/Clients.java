package sparkmq.broker;

import java.util.Collection;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** A producer, a pull consumer and an administrator of one name server. */
final class Clients implements AutoCloseable {
    private static final int MILLISECONDS_TO_ANSWER = 15_000;
    private static final int MILLISECONDS_BETWEEN = 50;

    private final DefaultMQProducer producer;
    private final DefaultMQPullConsumer consumer;
    private final DefaultMQAdminExt admin;

    private Clients(String nameServer, String name) {
        producer = configure(new DefaultMQProducer("producer-" + name), nameServer, "producer-" + name);
        producer.setSendMsgTimeout(MILLISECONDS_TO_ANSWER);
        consumer = configure(new DefaultMQPullConsumer("consumer-" + name), nameServer, "consumer-" + name);
        admin = configure(new DefaultMQAdminExt("admin-" + name, MILLISECONDS_TO_ANSWER), nameServer, "admin-" + name);
    }

    static Clients connect(String nameServer, String name) throws MQClientException {
        Clients clients = new Clients(nameServer, name);
        clients.producer.start();
        clients.consumer.start();
        clients.admin.start();
        return clients;
    }

    /** Points a client at a name server; the broker's second port stays unused. */
    static <T extends ClientConfig> T configure(T client, String nameServer, String instance) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName(instance);
        client.setVipChannelEnabled(false);
        return client;
    }

    /** Waits until the name server knows the topics: 5.x brokers register them in the background. */
    void awaitTopics(Collection<String> topics) throws Exception {
        long end = System.currentTimeMillis() + MILLISECONDS_TO_ANSWER;
        for (String topic : topics) {
            while (!isKnown(topic)) {
                if (System.currentTimeMillis() > end) {
                    throw new MQClientException("the name server does not know the topic " + topic, null);
                }
                Thread.sleep(MILLISECONDS_BETWEEN);
            }
        }
    }

    private boolean isKnown(String topic) throws Exception {
        try {
            return !admin.examineTopicRouteInfo(topic).getBrokerDatas().isEmpty();
        } catch (MQClientException notYet) {
            return false;
        }
    }

    DefaultMQProducer producer() {
        return producer;
    }

    DefaultMQPullConsumer consumer() {
        return consumer;
    }

    DefaultMQAdminExt admin() {
        return admin;
    }

    @Override
    public void close() {
        Stop.now(admin::shutdown);
        Stop.now(consumer::shutdown);
        Stop.now(producer::shutdown);
    }
}
