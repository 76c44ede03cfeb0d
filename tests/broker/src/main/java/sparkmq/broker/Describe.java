package sparkmq.broker;

import java.io.PrintStream;
import java.nio.file.Path;

/** Prints what the Java message store says of a store, as facts. Opening changes the store: give it a copy. */
final class Describe implements Command {
    @Override
    public int run(Arguments arguments) throws Exception {
        Path store = arguments.path("store");
        try (OpenStore opened = OpenStore.openToRead(store, arguments.settings());
             PrintStream output = Json.output()) {
            new Facts(opened.messageStore(), store, output).print();
        }
        return 0;
    }
}
