package sparkmq.broker;

import java.net.InetSocketAddress;
import java.util.List;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageId;

/** Looks up every message of a log by its offset id. */
final class IdQueries {
    private final Server server;
    private final Clients clients;
    private final Findings findings;

    IdQueries(Server server, Clients clients, Findings findings) {
        this.server = server;
        this.clients = clients;
        this.findings = findings;
    }

    void run(List<LogRecord> records) throws Exception {
        String[] broker = server.brokerAddress().split(":");
        InetSocketAddress address = new InetSocketAddress(broker[0], Integer.parseInt(broker[1]));
        for (LogRecord record : records) {
            // An id names the broker that stored the message; this one has another port.
            MessageId stored = MessageDecoder.decodeMessageId(record.message().getMsgId());
            MessageExt found = find(MessageDecoder.createMessageId(address, stored.getOffset()));
            if (found == null || found.getCommitLogOffset() != record.offset()) {
                findings.problem("id " + record.message().getMsgId() + " finds "
                    + (found == null ? "nothing" : "the message at " + found.getCommitLogOffset()));
            }
        }
        findings.count("ids", records.size());
    }

    private MessageExt find(String id) {
        try {
            // A broker of 5.5.1 compares a topic that is named with the one that a delayed message waits for.
            return clients.admin().viewMessage("", id);
        } catch (Exception notFound) {
            return null;
        }
    }
}
