package sparkmq.broker;

import java.util.LinkedHashMap;
import java.util.Map;

/** Serves a store until standard input closes, then stops cleanly. */
final class Serve implements Command {
    @Override
    public int run(Arguments arguments) throws Exception {
        try (Server server = Server.start(arguments.path("store"), arguments.settings(), Map.of())) {
            Map<String, Object> ready = new LinkedHashMap<>();
            ready.put("nameServer", server.nameServerAddress());
            ready.put("broker", server.brokerAddress());
            ready.put("process", ProcessHandle.current().pid());
            Json.print(ready);
            while (System.in.read() >= 0) {
                // Whatever comes in is dropped: only the end counts.
            }
        }
        return 0;
    }
}
