package sparkmq.broker;

import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Entry point of {@code mqadmin}, whose words these are. */
public final class MqAdmin {
    private MqAdmin() {
    }

    public static void main(String[] words) {
        Stop.now(() -> MQAdminStartup.main(words));
    }
}
