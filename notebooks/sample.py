"""The store that a notebook shows unless it has the path of another: a small one of a RocketMQ 5.3.3 broker."""

from __future__ import annotations

import shutil
from pathlib import Path

from spark_mq import MessageStore

_NAME = "workload-533"
_STORES = Path(__file__).parent.parent / "tests" / "stores"


def unpack(folder: str) -> tuple[str, str]:
    """The path of the sample, which is unpacked in `folder`, and of its broker's settings.

    Raises:
        FileNotFoundError: The notebook is not in the source tree, which has the sample.

    """
    if not _STORES.is_dir():
        raise FileNotFoundError("the sample is in the source tree only: write the path of your store into STORE")
    shutil.unpack_archive(_STORES / f"{_NAME}.tar.gz", folder, filter="data")
    return f"{folder}/{_NAME}", str(_STORES / f"{_NAME}.conf")


def topic_and_key(path: str) -> tuple[str, str]:
    """A topic and one of its keys, to try look-ups: those of the sample, or of a queue's last message.

    Raises:
        LookupError: No last message of a queue has a key.

    """
    if Path(path).name == _NAME:
        return "OrderEvents", "user342"
    with MessageStore(path) as store:
        for topic, queue_id in store.queues:
            offset = store.get_max_offset_in_queue(topic, queue_id) - 1
            for message in store.get_message(topic, queue_id, offset, max_num=1).to_pylist():
                if message["keys"]:
                    return topic, message["keys"][0]
    raise LookupError("no last message of a queue has a key: write a topic and a key of your store into this cell")
