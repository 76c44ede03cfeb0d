package sparkmq.broker;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;

/** For each line of hexadecimal bytes on standard input: the text Java reads from them, and its hash code. */
final class JavaText implements Command {
    @Override
    public int run(Arguments arguments) throws IOException {
        HexFormat hex = HexFormat.of();
        PrintStream output = Json.output();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String text = new String(hex.parseHex(line.strip()), StandardCharsets.UTF_8);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("utf8", hex.formatHex(text.getBytes(StandardCharsets.UTF_8)));
            answer.put("hashCode", text.hashCode());
            output.println(Json.line(answer));
        }
        return 0;
    }
}
