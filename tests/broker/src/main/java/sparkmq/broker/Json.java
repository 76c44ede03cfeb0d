package sparkmq.broker;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** JSON lines: one value a line, nulls written, text as it is. */
final class Json {
    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

    private Json() {
    }

    static String line(Object value) {
        return GSON.toJson(value);
    }

    static <T> T parse(String line, Class<T> type) {
        return GSON.fromJson(line, type);
    }

    static void print(Object value) {
        output().println(line(value));
    }

    /** Standard output in UTF-8, whatever the locale says. */
    static PrintStream output() {
        return new PrintStream(System.out, true, StandardCharsets.UTF_8);
    }
}
