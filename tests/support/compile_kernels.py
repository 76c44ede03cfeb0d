"""Compiles the kernels that most tests use, once: else each test process and each Spark worker does so for itself.

numba keeps compiled kernels in a cache beside their modules, so later runs of this file take a second or two.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from spark_mq.format.kernels.dispatch import DEFAULT_DELAY_LEVELS
from spark_mq.indexer.settings import DispatchTargets
from spark_mq.indexer.staging.split_dispatch import dispatch_split
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.splits import plan_splits
from tests.support.in_process import read_rows
from tests.support.index_stores import build_index, layout_of, messages_of
from tests.support.stores import OWN_STORES, RealStore

STORE = RealStore("workload-533", OWN_STORES)


def main() -> None:
    """Read a store, dispatch it, and build its index, without Spark."""
    with tempfile.TemporaryDirectory() as folder:
        store = STORE.unpack(Path(folder))
        read_rows(path=str(store), splitSize="64k", checkCrc="true")
        staged = Location.resolve(folder) / "staged"
        staged.filesystem.create_dir(staged.path)
        targets = DispatchTargets(staged, 2000, True, DEFAULT_DELAY_LEVELS)
        for is_exact in (False, True):
            for split in plan_splits(CommitLog.open(Location.resolve(str(store))), 1 << 30 if is_exact else 64 << 10):
                dispatch_split(split, targets, is_exact)
        build_index(messages_of(store), layout_of(STORE))


if __name__ == "__main__":
    main()
