package sparkmq.broker;

import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Entry point: the first argument names the command, the others are {@code --name value} pairs. */
public final class Main {
    private static final Map<String, Command> COMMANDS = new TreeMap<>(Map.ofEntries(
        Map.entry("serve", new Serve()),
        Map.entry("send", new Send()),
        Map.entry("append", new Append()),
        Map.entry("boots", new Boots()),
        Map.entry("describe", new Describe()),
        Map.entry("rebuild", new Rebuild()),
        Map.entry("check", new Check()),
        Map.entry("codec", new Codec()),
        Map.entry("consume", new Consume()),
        Map.entry("allocate", new Allocate()),
        Map.entry("delay", new Delay()),
        Map.entry("filter", new Filter()),
        Map.entry("filtered", new Filtered()),
        Map.entry("groups", new Groups()),
        Map.entry("pull", new Pull()),
        Map.entry("trace-events", new TraceEvents()),
        Map.entry("java-text", new JavaText())));

    private Main() {
    }

    public static void main(String[] words) {
        Command command = words.length == 0 ? null : COMMANDS.get(words[0]);
        if (command == null) {
            System.err.println("usage: Main " + String.join("|", COMMANDS.keySet()) + " [--name value]...");
            System.exit(2);
        }
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        try {
            int exitCode = command.run(new Arguments(words));
            System.out.flush();
            // RocketMQ leaves threads behind that would keep the process alive.
            System.exit(exitCode);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(3);
        }
    }
}
