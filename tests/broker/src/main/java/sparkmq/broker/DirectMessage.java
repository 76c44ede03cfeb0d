package sparkmq.broker;

import java.net.SocketAddress;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A message for the message store itself, with everything that a client would not let through.
 *
 * @param topic      any text, longer than clients allow, too
 * @param queueId    the queue
 * @param body       may be empty
 * @param properties property text as it is to be stored: repeated names, empty values
 * @param tags       the tag in that text, or null
 * @param systemFlag the system flag; the store adds what it finds out by itself
 * @param bornHost   host of the sender, IPv4 or IPv6
 * @param storeHost  host of the broker, IPv4 or IPv6
 */
record DirectMessage(String topic, int queueId, byte[] body, String properties, String tags, int systemFlag,
                     SocketAddress bornHost, SocketAddress storeHost) {
    void fill(MessageExt message) {
        message.setTopic(topic);
        message.setQueueId(queueId);
        message.setBody(body);
        // For the store's own decisions; what it writes is the text.
        MessageAccessor.setProperties(message, MessageDecoder.string2messageProperties(properties));
        message.setSysFlag(systemFlag);
        message.setBornHost(bornHost);
        message.setStoreHost(storeHost);
        message.setBornTimestamp(System.currentTimeMillis());
    }
}
