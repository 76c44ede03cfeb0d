"""The modules of a Python worker, which Spark's garbage collection after each task need not look at.

After a task, Spark's Python daemon calls `gc.collect` in the worker (`pyspark.daemon`, 4.0 to 4.2). With numba and
pyarrow, a worker has more than 100,000 objects of modules, which are never garbage, and looking at all of them takes 25
to 40 ms. A scan of one segment has eight tasks. After `gc.freeze`, the collector looks only at objects that are newer.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext


class _Frozen:
    """How many modules this process had when it last froze their objects."""

    modules = 0


@contextmanager
def frozen_modules() -> Iterator[None]:
    """A context of a task. When it ends, the objects of modules that were imported in it are frozen.

    Garbage is collected before, once for these modules, so that it does not stay. Outside of a Spark task nothing is
    frozen: the process belongs to a user, whose objects can become garbage.
    """
    try:
        yield
    finally:
        if len(sys.modules) != _Frozen.modules and TaskContext.get() is not None:
            _Frozen.modules = len(sys.modules)
            gc.collect()
            gc.freeze()
