package sparkmq.broker;

import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.GZIPInputStream;

/**
 * Serves a store and checks with real clients that every message of its log is served, and that new messages find
 * their place behind them. Serving changes the store: give it a copy.
 */
final class Check implements Command {
    @Override
    public int run(Arguments arguments) throws Exception {
        Findings findings = new Findings();
        Path store = arguments.path("store");
        List<LogRecord> records = CommitLogWalk.records(store.resolve("commitlog")).stream()
            .filter(record -> !record.isBlank()).toList();
        findings.count("messages", records.size());
        if (arguments.has("facts")) {
            compareWithFacts(records, arguments.path("facts"), findings);
        }
        ServedQueues expected = new ServedQueues(records);
        Settings settings = arguments.settings();
        // To write the whole wheel of timers each second takes a fifth of the CPU time, and nobody reads it afterwards.
        settings.properties().setProperty("timerFlushIntervalMs", "3600000");
        // Neither is closed: the process ends with the check, and clean stops would take longer than all the rest.
        Server server = Server.start(store, settings, expected.queueCounts());
        Clients clients = Clients.connect(server.nameServerAddress(), "check");
        clients.awaitTopics(expected.queueCounts().keySet());
        new QueueCheck(server, clients, findings).run(expected);
        if (arguments.flag("index")) {
            new KeyQueries(clients, findings).run(records);
        }
        new IdQueries(server, clients, findings).run(records);
        new SendCheck(server, clients, findings).run(expected, arguments.flag("index"));
        Json.print(findings.report());
        return findings.isClean() ? 0 : 1;
    }

    private static void compareWithFacts(List<LogRecord> records, Path facts, Findings findings) throws IOException {
        Map<Long, String> expected = new TreeMap<>();
        try (BufferedReader reader = new BufferedReader(new InputStreamReader(open(facts), StandardCharsets.UTF_8))) {
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                JsonObject fact = Json.parse(line, JsonObject.class);
                if (fact.get("t").getAsString().equals("msg")) {
                    expected.put(fact.get("offset").getAsLong(), fact.get("recordMd5").getAsString());
                }
            }
        }
        findings.count("facts", expected.size());
        for (LogRecord record : records) {
            if (!Digest.md5(record.bytes()).equals(expected.remove(record.offset()))) {
                findings.problem("the log's message at " + record.offset() + " is not that of the facts");
            }
        }
        expected.keySet().forEach(offset -> findings.problem("the log has no message at " + offset));
    }

    private static InputStream open(Path facts) throws IOException {
        InputStream file = new FileInputStream(facts.toFile());
        return facts.toString().endsWith(".gz") ? new GZIPInputStream(file) : file;
    }
}
