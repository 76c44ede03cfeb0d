"""Which settings of a broker make light message queues, and where, if the store has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.queue.queue_database import has_light_database, has_light_queues, makes_light_queues


@pytest.mark.parametrize(
    ("enabled", "in_files", "in_database"),
    [
        ("", False, False),
        ("enableLmq", False, False),
        ("enableMultiDispatch", False, False),
        ("enableLmq enableMultiDispatch", True, False),
        ("enableLmq enableMultiDispatch rocksdbCQDoubleWriteEnable", True, False),
        ("enableLmq enableMultiDispatch rocksdbCQDoubleWriteEnable combineCQUseRocksdbForLmq", False, True),
    ],
)
def test_settings_say_where_light_queues_are(enabled: str, in_files: bool, in_database: bool, tmp_path: Path) -> None:
    store, conf = Location.resolve(str(tmp_path)), BrokerConf(dict.fromkeys(enabled.split(), "true"))
    assert has_light_queues(store, conf) == in_files
    assert has_light_database(store, conf) == in_database
    assert makes_light_queues(store, conf) == (in_files or in_database)
