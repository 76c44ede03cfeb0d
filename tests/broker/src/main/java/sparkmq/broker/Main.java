package sparkmq.broker;

import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Entry point: the first argument names the command, the others are {@code --name value} pairs. */
public final class Main {
    private static final Map<String, Command> COMMANDS = new TreeMap<>(Map.of(
        "serve", new Serve(),
        "send", new Send(),
        "append", new Append(),
        "describe", new Describe(),
        "rebuild", new Rebuild(),
        "check", new Check(),
        "java-text", new JavaText()));

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
