package sparkmq.broker;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * What the broker's SQL92 filter says about messages. Each line of standard input has an expression, and the properties
 * of messages; each line of the answer has TRUE, FALSE, NULL or ERROR for each message, or null if the expression is
 * refused. A line that has `tags` instead is answered by the tags of such a subscription: `["*"]` for all messages; one
 * that has `bloom`, the text of a group and topic, by the number of bits and the text's bits.
 */
final class Filter implements Command {
    /** One line of standard input. */
    private static final class Question {
        String expression;
        String tags;
        List<Map<String, String>> messages;
        String bloom;
        int errorRate;
        int groups;
    }

    @Override
    public int run(Arguments arguments) throws Exception {
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            output.println(Json.line(answer(Json.parse(line, Question.class))));
        }
        output.flush();
        return 0;
    }

    private static List<String> answer(Question question) {
        if (question.tags != null) {
            return subscribe(question.tags);
        }
        if (question.bloom != null) {
            return bits(question);
        }
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(question.expression);
        } catch (MQFilterException refused) {
            return null;
        }
        List<String> answers = new ArrayList<>();
        for (Map<String, String> properties : question.messages) {
            answers.add(evaluate(expression, properties));
        }
        return answers;
    }

    private static List<String> bits(Question question) {
        BloomFilter filter = BloomFilter.createByFn(question.errorRate, question.groups);
        List<String> answer = new ArrayList<>(List.of(Integer.toString(filter.getM())));
        for (int position : filter.calcBitPositions(question.bloom)) {
            answer.add(Integer.toString(position));
        }
        return answer;
    }

    private static List<String> subscribe(String tags) {
        try {
            Map.Entry<String, Set<String>> subscription = Protocol.subscribe(tags);
            return subscription.getKey().equals("*") ? List.of("*") : new ArrayList<>(subscription.getValue());
        } catch (Exception refused) {
            return null;
        }
    }

    private static String evaluate(Expression expression, Map<String, String> properties) {
        try {
            Object result = expression.evaluate(new MessageEvaluationContext(properties));
            return result == null ? "NULL" : result.toString().toUpperCase();
        } catch (Exception error) {
            return "ERROR";
        }
    }
}
