"""The Java strategies share queues out as `spark_mq.sharing` does."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.broker import harness
from tests.support.allocation_cases import NAMES, answer, random_cases, strategy_of

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("version", harness.VERSIONS)
def test_java_gives_each_client_the_same_queues(version: str) -> None:
    cases = random_cases(seed=22, count=2000)
    shared, failed = Counter[str](), Counter[str]()
    for case, said in zip(cases, harness.answers("allocate", map(json.dumps, cases), version), strict=True):
        assert answer(case) == said.get("shares"), (case, said)
        if "failure" in said:
            failed[case["strategy"]] += 1
        else:
            assert strategy_of(case | {"configured": {}}, case["strategy"], []).name == said["name"]
            shared[case["strategy"]] += 1
    assert min(shared[name] for name in NAMES) > 100
    assert min(failed[name] for name in NAMES if name != "CONFIG") > 20
