package sparkmq.broker;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;

/** For each line of hexadecimal bytes on standard input: the events the Java decoder reads, or its exception. */
final class TraceEvents implements Command {
    @Override
    public int run(Arguments arguments) throws IOException {
        PrintStream output = Json.output();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String body = new String(HexFormat.of().parseHex(line.strip()), StandardCharsets.UTF_8);
            output.println(Json.line(answer(body)));
        }
        return 0;
    }

    private static Map<String, Object> answer(String body) {
        try {
            List<Map<String, Object>> events = new ArrayList<>();
            for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(body)) {
                events.add(event(context));
            }
            return Map.of("events", events);
        } catch (RuntimeException failure) {
            return Map.of("failure", failure.toString());
        }
    }

    private static Map<String, Object> event(TraceContext context) {
        TraceBean bean = context.getTraceBeans().get(0);
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("event_type", context.getTraceType().name());
        event.put("event_millis", context.getTimeStamp());
        event.put("region_id", context.getRegionId());
        event.put("group_name", context.getGroupName());
        event.put("cost_millis", context.getCostTime());
        event.put("is_success", context.isSuccess());
        event.put("request_id", context.getRequestId());
        event.put("return_type", context.getContextCode());
        event.put("topic", bean.getTopic());
        event.put("unique_key", bean.getMsgId());
        event.put("offset_message_id", bean.getOffsetMsgId());
        event.put("tags", bean.getTags());
        event.put("keys", bean.getKeys());
        event.put("store_host", bean.getStoreHost());
        event.put("client_host", bean.getClientHost());
        event.put("retry_times", bean.getRetryTimes());
        event.put("body_length", bean.getBodyLength());
        event.put("message_type", bean.getMsgType() == null ? null : bean.getMsgType().name());
        event.put("transaction_id", bean.getTransactionId());
        event.put("transaction_state", bean.getTransactionState() == null ? null : bean.getTransactionState().name());
        event.put("is_from_check", bean.isFromTransactionCheck());
        return event;
    }
}
