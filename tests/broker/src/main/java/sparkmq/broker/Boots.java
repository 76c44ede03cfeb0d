package sparkmq.broker;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Boots many stores, one for each line of standard input with its {@code store} and {@code settings}, a few at a time.
 *
 * <p>The answer to each, in their order, has the ends of log and queues, or a failure: the store does not load, or its
 * start has slept for so many seconds, and done nothing else. Then the store is stopped. The thread that boots a store
 * has its path as name, which is in each line of the log.
 */
final class Boots implements Command {
    private static final int AT_A_TIME = 4;

    @Override
    public int run(Arguments arguments) throws Exception {
        int seconds = arguments.number("seconds");
        ExecutorService takers = Executors.newFixedThreadPool(AT_A_TIME);
        ExecutorService boots = Executors.newCachedThreadPool();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<Future<Map<String, Object>>> answers = new ArrayList<>();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Map<?, ?> store = Json.parse(line, Map.class);
            answers.add(takers.submit(() -> await(boots, store, seconds)));
        }
        for (Future<Map<String, Object>> answer : answers) {
            Json.print(answer.get());
        }
        return 0;
    }

    private static Map<String, Object> await(ExecutorService boots, Map<?, ?> store, int seconds) throws Exception {
        AtomicReference<Thread> booting = new AtomicReference<>();
        Future<Map<String, Object>> boot = boots.submit(() -> {
            booting.set(Thread.currentThread());
            Thread.currentThread().setName((String) store.get("store"));
            return boot(store);
        });
        int asleep = 0;
        while (asleep < seconds) {
            try {
                return boot.get(1, TimeUnit.SECONDS);
            } catch (TimeoutException waits) {
                Thread thread = booting.get();
                asleep = thread != null && thread.getState() == Thread.State.TIMED_WAITING ? asleep + 1 : 0;
            }
        }
        return Map.of("failure", "its start waits for " + seconds + " seconds");
    }

    private static Map<String, Object> boot(Map<?, ?> names) {
        Path path = Path.of((String) names.get("store"));
        try {
            Settings settings = Settings.load(Path.of((String) names.get("settings")));
            try (OpenStore opened = OpenStore.openToRead(path, settings)) {
                Map<String, Object> answer = describe(opened.messageStore());
                // A stop sleeps for seconds until threads have ended, which have nothing to do here.
                Thread.currentThread().interrupt();
                return answer;
            }
        } catch (Throwable failure) {
            return Map.of("failure", failure + " " + failure.getCause());
        } finally {
            Thread.interrupted();
        }
    }

    private static Map<String, Object> describe(DefaultMessageStore store) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("logEnd", store.getMaxPhyOffset());
        Map<String, Map<Integer, Long>> ends = new TreeMap<>();
        for (String topic : store.getConsumeQueueTable().keySet()) {
            Map<Integer, Long> byId = new TreeMap<>();
            for (int id : store.getConsumeQueueTable().get(topic).keySet()) {
                byId.put(id, store.getMaxOffsetInQueue(topic, id));
            }
            ends.put(topic, byId);
        }
        answer.put("queueEnds", ends);
        return answer;
    }
}
