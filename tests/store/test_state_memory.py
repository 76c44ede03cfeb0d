"""The facts that a process keeps."""

from __future__ import annotations

from spark_mq.store.store_lock import StateMemory


def test_the_facts_that_were_used_last_are_kept() -> None:
    memory = StateMemory[str]()
    for number in range(20):
        memory.keep((b"state", number), str(number))
        assert memory.recall((b"state", 0)) == "0"
    assert [number for number in range(20) if memory.recall((b"state", number)) is None] == [1, 2, 3, 4]
    assert memory.recall((b"another state", 0)) is None
    memory.clear()
    assert memory.recall((b"state", 0)) is None
