package sparkmq.broker;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;

/** Rebuilds consume queues and index files from the commit log with the Java message store, and times it. */
final class Rebuild implements Command {
    private static final long NANOSECONDS = 1_000_000L;

    @Override
    public int run(Arguments arguments) throws Exception {
        Path store = arguments.path("store");
        for (String derived : new String[] {"consumequeue", "index", "checkpoint", "abort"}) {
            if (Files.exists(store.resolve(derived))) {
                throw new IOException(store.resolve(derived) + " is in the way: give a store with its commit log only");
            }
        }
        AtomicLong messages = new AtomicLong();
        long begin = System.nanoTime();
        long dispatched;
        long flushed;
        try (OpenStore opened =
                 OpenStore.openToRead(store, arguments.settings(), request -> messages.incrementAndGet())) {
            dispatched = System.nanoTime();
            for (String derived : new String[] {"consumequeue", "index"}) {
                flush(store.resolve(derived));
            }
            flushed = System.nanoTime();
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("messages", messages.get());
        answer.put("dispatchMilliseconds", (dispatched - begin) / NANOSECONDS);
        answer.put("flushMilliseconds", (flushed - dispatched) / NANOSECONDS);
        Json.print(answer);
        return 0;
    }

    private static void flush(Path directory) throws IOException {
        if (!Files.exists(directory)) {
            return;
        }
        try (Stream<Path> paths = Files.walk(directory)) {
            for (Path file : paths.filter(Files::isRegularFile).toList()) {
                try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
                    channel.force(true);
                }
            }
        }
    }
}
