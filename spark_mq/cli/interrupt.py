"""Ctrl-C while Spark works: one line, and the exit status that shells know.

PySpark's own handler calls into its JVM in the middle of another call, and a Spark that stops with work left logs a
stack trace for each job, stream and task. A command that uses this may be killed at any moment: nothing has to be
saved.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from spark_mq.cli.exit_status import INTERRUPTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERRUPTED_LINE = "spark-mq: interrupted"
_MOST_SECONDS = 20.0
"""How long Spark may take to stop; a second Ctrl-C does not wait."""


@contextmanager
def ends_on_interrupt(spark: SparkSession) -> Iterator[None]:
    """Within, Ctrl-C stops Spark quietly and ends the process, with a line on stderr and exit status 130."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
        print(f"\n{INTERRUPTED_LINE}" if sys.stderr.isatty() else INTERRUPTED_LINE, file=sys.stderr, flush=True)
        # A thread has its own connection to the JVM; that of this one may be in the middle of a call.
        stopping = threading.Thread(target=_stop, args=(spark,), daemon=True)
        stopping.start()
        stopping.join(_MOST_SECONDS)
        os._exit(INTERRUPTED)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _stop(spark: SparkSession) -> None:
    """Stop what runs, and Spark, without a word."""
    with suppress(Exception):  # Spark Connect has none of this; its server ends what the client began
        spark.sparkContext.setLogLevel("OFF")
        for query in spark.streams.active:
            query.stop()
        spark.sparkContext.cancelAllJobs()
        spark.stop()
