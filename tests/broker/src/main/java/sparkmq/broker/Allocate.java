package sparkmq.broker;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** For each case, a JSON line on standard input: the queues that its strategy gives each client, or its exception. */
final class Allocate implements Command {
    /** A case. Queues are named by their position in {@code queues}. */
    private static final class Case {
        String strategy;
        String inner;
        int points;
        List<Queue> queues;
        List<String> clients;
        List<String> rooms;
        Map<String, String> brokerRooms;
        Map<String, String> clientRooms;
        Map<String, List<Integer>> configured;
    }

    private static final class Queue {
        String topic;
        String broker;
        int id;
    }

    @Override
    public int run(Arguments arguments) throws IOException {
        PrintStream output = Json.output();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.println(Json.line(answer(Json.parse(line, Case.class))));
        }
        return 0;
    }

    private static Map<String, Object> answer(Case asked) {
        List<MessageQueue> queues = new ArrayList<>();
        for (Queue queue : asked.queues) {
            queues.add(new MessageQueue(queue.topic, queue.broker, queue.id));
        }
        // As RebalanceImpl sorts them.
        List<MessageQueue> sorted = new ArrayList<>(queues);
        Collections.sort(sorted);
        List<String> clients = new ArrayList<>(asked.clients);
        Collections.sort(clients);
        Map<String, List<Integer>> shares = new LinkedHashMap<>();
        String name = null;
        try {
            for (String client : clients) {
                AllocateMessageQueueStrategy strategy = strategy(asked, asked.strategy, client, queues);
                name = strategy.getName();
                List<Integer> share = new ArrayList<>();
                for (MessageQueue queue : strategy.allocate("group", client, sorted, clients)) {
                    share.add(queues.indexOf(queue));
                }
                shares.put(client, share);
            }
            if (clients.isEmpty()) {
                strategy(asked, asked.strategy, "", queues).allocate("group", "client", sorted, clients);
            }
            return Map.of("name", String.valueOf(name), "shares", shares);
        } catch (RuntimeException failure) {
            return Map.of("failure", failure.toString());
        }
    }

    private static AllocateMessageQueueStrategy strategy(
        Case asked, String name, String client, List<MessageQueue> queues) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(asked.points);
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new HashSet<>(asked.rooms));
                return byRoom;
            case "MACHINE_ROOM_NEARBY":
                return new AllocateMachineRoomNearby(strategy(asked, asked.inner, client, queues), resolver(asked));
            case "CONFIG":
                List<MessageQueue> configured = new ArrayList<>();
                for (int position : asked.configured.getOrDefault(client, List.of())) {
                    configured.add(queues.get(position));
                }
                AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
                byConfig.setMessageQueueList(configured);
                return byConfig;
            default:
                throw new IllegalStateException("no strategy " + name);
        }
    }

    private static AllocateMachineRoomNearby.MachineRoomResolver resolver(Case asked) {
        return new AllocateMachineRoomNearby.MachineRoomResolver() {
            @Override
            public String brokerDeployIn(MessageQueue queue) {
                return asked.brokerRooms.get(queue.getBrokerName());
            }

            @Override
            public String consumerDeployIn(String client) {
                return asked.clientRooms.get(client);
            }
        };
    }
}
