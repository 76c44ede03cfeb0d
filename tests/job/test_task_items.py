from __future__ import annotations

import pickle
from pathlib import Path

from spark_mq.io.location import Location
from spark_mq.job.tasks import TaskItems


class Loud:
    """Says when it is unpickled."""

    loaded = 0

    def __setstate__(self, state: dict[str, int]) -> None:
        Loud.loaded += 1
        self.__dict__ = state

    def __init__(self, number: int) -> None:
        self.number = number


def test_a_task_unpickles_its_own_item() -> None:
    items: TaskItems[Loud] = pickle.loads(pickle.dumps(TaskItems.of(map(Loud, range(1000)))))
    assert Loud.loaded == 0
    assert items[7].number == 7
    assert Loud.loaded == 1
    assert [items[number].number for number in range(1000)] == list(range(1000))


def test_locations_are_items(tmp_path: Path) -> None:
    location = Location.resolve(str(tmp_path))
    assert TaskItems.of([location])[0] == location
