package sparkmq.broker;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.TopicConfig;

/** Sends a seeded workload to a running broker. */
final class Send implements Command {
    private static final int READ_AND_WRITE = 6;
    private static final Map<String, Integer> QUEUE_COUNTS = Map.of(
        "OrderEvents", 4, "PaymentLog", 2, "user_activity", 1, "BatchIngest", 2, "DelayDemo", 2, "TimerDemo", 2,
        "TransactionDemo", 2, "RetryDemo", 1, "SequenceDemo", 3, "LastQueue", 1);

    @Override
    public int run(Arguments arguments) throws Exception {
        String nameServer = arguments.text("name-server");
        String kind = arguments.text("kind");
        int count = arguments.number("count");
        int seed = arguments.number("seed");
        int sent;
        try (Clients clients = Clients.connect(nameServer, kind + seed)) {
            createTopics(clients, arguments.text("broker"));
            sent = switch (kind) {
                case "mixed" -> mixed(clients, nameServer, seed, count);
                case "sequence" -> new SequenceWorkload(clients.producer())
                    .run("SequenceDemo", 3, arguments.number("from"), count, arguments.number("body"));
                case "last-queue" -> new SequenceWorkload(clients.producer())
                    .run("LastQueue", 1, 0, count, arguments.number("body"));
                case "half" -> half(nameServer, seed, count);
                case "burst" -> new BurstWorkload(nameServer).run(seed, count);
                default -> throw new IllegalArgumentException("no such kind of workload: " + kind);
            };
        }
        Json.print(Map.of("sent", sent));
        return 0;
    }

    private static int mixed(Clients clients, String nameServer, int seed, int count) throws Exception {
        Map<String, Integer> sent = new LinkedHashMap<>();
        MessageMaker maker = new MessageMaker(seed);
        ProducerWorkload producers = new ProducerWorkload(clients.producer(), maker);
        try (TransactionWorkload transactions = new TransactionWorkload(nameServer, maker);
             RetryWorkload retries = new RetryWorkload(nameServer, clients.producer(), maker)) {
            sent.put("transactions", transactions.send());
            sent.put("retries", retries.send());
            sent.put("delays", producers.delays());
            sent.put("timers", Release.HAS_TIMERS ? producers.timers() : 0);
            sent.put("compressed", producers.compressed(nameServer));
            sent.put("plain", producers.plain(count));
            sent.put("batches", producers.batches());
            retries.await();
            transactions.await();
            producers.awaitDelays();
        }
        return sent.values().stream().mapToInt(Integer::intValue).sum();
    }

    private static int half(String nameServer, int seed, int count) throws Exception {
        try (TransactionWorkload transactions = new TransactionWorkload(nameServer, new MessageMaker(seed))) {
            return transactions.leaveHalf(count);
        }
    }

    private static void createTopics(Clients clients, String broker) throws Exception {
        for (Map.Entry<String, Integer> topic : QUEUE_COUNTS.entrySet()) {
            clients.admin().createAndUpdateTopicConfig(broker,
                new TopicConfig(topic.getKey(), topic.getValue(), topic.getValue(), READ_AND_WRITE));
        }
        clients.awaitTopics(QUEUE_COUNTS.keySet());
    }
}
