package sparkmq.broker;

import java.util.LinkedHashMap;
import java.util.Map;

/** Serves a store until standard input closes, then stops cleanly. */
final class Serve implements Command {
    @Override
    public int run(Arguments arguments) throws Exception {
        boolean isGiven = arguments.has("name-server-port");
        int nameServerPort = isGiven ? arguments.number("name-server-port") : Loopback.freePort();
        int brokerPort = isGiven ? arguments.number("broker-port") : Loopback.freeBrokerPort();
        try (Server server = Server.start(
            arguments.path("store"), arguments.settings(), Map.of(), nameServerPort, brokerPort)) {
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
