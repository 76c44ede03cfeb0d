package sparkmq.broker;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What a check counted and what it found wrong. */
final class Findings {
    private static final int PROBLEMS_LISTED = 50;

    private final Map<String, Integer> counts = new LinkedHashMap<>();
    private final List<String> problems = new ArrayList<>();

    void count(String what, int number) {
        counts.merge(what, number, Integer::sum);
    }

    void problem(String text) {
        problems.add(text);
    }

    boolean isClean() {
        return problems.isEmpty();
    }

    Map<String, Object> report() {
        Map<String, Object> report = new LinkedHashMap<>(counts);
        report.put("problemCount", problems.size());
        report.put("problems", problems.subList(0, Math.min(problems.size(), PROBLEMS_LISTED)));
        return report;
    }
}
