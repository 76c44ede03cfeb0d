package sparkmq.broker;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.protocol.body.QueryConsumeQueueResponseBody;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What changed in 5.1.0: packages of classes, and the record, which has a version 2 from then on. */
final class Protocol {
    /** Longest topic of a message in the log, in characters. */
    static final int LONGEST_TOPIC = 127;

    private Protocol() {
    }

    /** The tags that a subscription names: all, if the text of the subscription is `*`. */
    static Map.Entry<String, Set<String>> subscribe(String tags) throws Exception {
        SubscriptionData subscription = FilterAPI.buildSubscriptionData("topic", tags);
        return Map.entry(subscription.getSubString(), subscription.getTagsSet());
    }

    /** Units of a queue from an index on; none if there is no such queue. */
    static List<QueueUnit> queueUnits(DefaultMQAdminExt admin, String broker, String topic, int queueId, long index,
        int count) throws Exception {
        QueryConsumeQueueResponseBody answer;
        try {
            answer = admin.queryConsumeQueue(broker, topic, queueId, index, count, null);
        } catch (NullPointerException noUnits) {
            // The 4.9 client stumbles over an answer without a body, which is how a broker says that there are none.
            return List.of();
        }
        if (answer == null || answer.getQueueData() == null) {
            return List.of();
        }
        return answer.getQueueData().stream()
            .map(unit -> new QueueUnit(unit.getPhysicOffset(), unit.getPhysicSize(), unit.getTagsCode()))
            .toList();
    }

    static void createGroup(DefaultMQAdminExt admin, String broker, String group) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        admin.createAndUpdateSubscriptionGroupConfig(broker, config);
    }
}
