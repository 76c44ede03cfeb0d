package sparkmq.broker;

import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** The {@code --name value} pairs that follow the command's name. */
final class Arguments {
    private final Map<String, String> values = new HashMap<>();

    Arguments(String[] words) {
        for (int i = 1; i < words.length; i += 2) {
            if (!words[i].startsWith("--") || i + 1 == words.length) {
                throw new IllegalArgumentException("expected --name value, found " + words[i]);
            }
            values.put(words[i].substring(2), words[i + 1]);
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    Path path(String name) {
        return Path.of(text(name)).toAbsolutePath();
    }

    int number(String name) {
        return Integer.parseInt(text(name));
    }

    boolean flag(String name) {
        return Boolean.parseBoolean(text(name, "false"));
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    /** The broker settings in the file given as {@code --settings}. */
    Settings settings() throws IOException {
        return Settings.load(path("settings"));
    }
}
