package sparkmq.broker;

import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A broker's settings file, applied to the configuration objects of broker and store. */
final class Settings {
    private final Properties properties;

    private Settings(Properties properties) {
        this.properties = properties;
    }

    static Settings load(Path file) throws IOException {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(file)) {
            properties.load(reader);
        }
        return new Settings(properties);
    }

    Properties properties() {
        return properties;
    }

    MessageStoreConfig storeConfig(Path store, int haListenPort) {
        MessageStoreConfig config = new MessageStoreConfig();
        // A test store must not expire because it is old or because the disk of the machine is nearly full.
        config.setFileReservedTime(1_000_000);
        config.setDiskMaxUsedSpaceRatio(95);
        config.setCleanFileForciblyEnable(false);
        apply(config);
        config.setStorePathRootDir(store.toString());
        config.setStorePathCommitLog(store.resolve("commitlog").toString());
        config.setHaListenPort(haListenPort);
        return config;
    }

    /** Sets all fields of an object that the settings name. */
    void apply(Object config) {
        MixAll.properties2Object(properties, config);
    }

    BrokerConfig brokerConfig() {
        BrokerConfig config = new BrokerConfig();
        apply(config);
        config.setBrokerName("broker");
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerIP2("127.0.0.1");
        return config;
    }
}
