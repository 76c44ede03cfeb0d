"""The facts that a process keeps."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

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


def test_threads_share_a_memory() -> None:
    """Those that plan reads in one process of Sail, for example."""
    memory = StateMemory[int]()

    def use(first: int) -> None:
        for number in range(first, first + 20_000):
            memory.keep(number % 37, number)
            memory.recall((number + 30) % 37)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(use, range(0, 40, 10)))
    finally:
        sys.setswitchinterval(interval)
