package sparkmq.broker;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import org.apache.rocketmq.store.CommitLogDispatcher;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A store directory opened with the Java message store, without a broker around it. */
final class OpenStore implements AutoCloseable {
    private final DefaultMessageStore messageStore;

    private OpenStore(DefaultMessageStore messageStore) {
        this.messageStore = messageStore;
    }

    /** Opens a store to put messages into it. */
    static OpenStore openToAppend(Path store, Settings settings) throws Exception {
        MessageStoreConfig config = settings.storeConfig(store, Loopback.freePort());
        return open(store, Release.messageStore(config, settings.brokerConfig()));
    }

    /** Opens a store so that it adds no messages of its own; the dispatchers get to see what is dispatched. */
    static OpenStore openToRead(Path store, Settings settings, CommitLogDispatcher... dispatchers) throws Exception {
        DefaultMessageStore messageStore;
        synchronized (OpenStore.class) { // the first objects of some classes cannot be made by two threads
            MessageStoreConfig config = settings.storeConfig(store, Loopback.freePort());
            Release.deliverNothing(config);
            messageStore = Release.messageStore(config, settings.brokerConfig());
        }
        messageStore.getDispatcherList().addAll(List.of(dispatchers));
        return open(store, messageStore);
    }

    /** Opens a store as a broker does at its start and waits until every message of the log is dispatched. */
    private static OpenStore open(Path store, DefaultMessageStore messageStore) throws Exception {
        if (!messageStore.load()) {
            throw new IOException("the message store does not load " + store);
        }
        Release.listenOnLoopback(messageStore);
        messageStore.start();
        OpenStore opened = new OpenStore(messageStore);
        opened.awaitDispatch();
        return opened;
    }

    DefaultMessageStore messageStore() {
        return messageStore;
    }

    void awaitDispatch() throws InterruptedException {
        while (messageStore.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    @Override
    public void close() {
        Stop.now(messageStore::shutdown);
    }
}
