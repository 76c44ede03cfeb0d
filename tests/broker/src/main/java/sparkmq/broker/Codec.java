package sparkmq.broker;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * For each line of JSON on standard input: the command of its {@code frame} (hexadecimal bytes, after their length), or
 * else the frame, with its length, of the command that the line is. An exception is a {@code failure}.
 */
final class Codec implements Command {
    /** A command as JSON; a frame alone is to be decoded. */
    static final class Fields {
        String frame;
        int code;
        String language;
        int version;
        int opaque;
        int flag;
        String remark;
        HashMap<String, String> extFields;
        String serializeType;
        String body;
    }

    @Override
    public int run(Arguments arguments) throws IOException {
        PrintStream output = Json.output();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.println(Json.line(answer(Json.parse(line, Fields.class))));
        }
        return 0;
    }

    private static Map<String, Object> answer(Fields fields) {
        try {
            return fields.frame == null ? encoded(fields) : decoded(HexFormat.of().parseHex(fields.frame));
        } catch (Exception failure) {
            return Map.of("failure", failure.toString());
        }
    }

    private static Map<String, Object> encoded(Fields fields) {
        RemotingCommand command = RemotingCommand.createRequestCommand(fields.code, null);
        command.setLanguage(LanguageCode.valueOf(fields.language));
        command.setVersion(fields.version);
        command.setOpaque(fields.opaque);
        command.setFlag(fields.flag);
        command.setRemark(fields.remark);
        command.setExtFields(fields.extFields);
        command.setSerializeTypeCurrentRPC(SerializeType.valueOf(fields.serializeType));
        command.setBody(fields.body == null ? null : HexFormat.of().parseHex(fields.body));
        ByteBuffer frame = command.encode();
        return Map.of("frame", HexFormat.of().formatHex(frame.array(), 0, frame.limit()));
    }

    private static Map<String, Object> decoded(byte[] frame) throws Exception {
        RemotingCommand command = RemotingCommand.decode(frame);
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("code", command.getCode());
        fields.put("language", command.getLanguage() == null ? null : command.getLanguage().name());
        fields.put("version", command.getVersion());
        fields.put("opaque", command.getOpaque());
        fields.put("flag", command.getFlag());
        fields.put("remark", command.getRemark());
        fields.put("extFields", command.getExtFields());
        fields.put("serializeType", command.getSerializeTypeCurrentRPC().name());
        fields.put("body", command.getBody() == null ? null : HexFormat.of().formatHex(command.getBody()));
        return fields;
    }
}
