"""Spark's Python daemon, without tracebacks for workers to whom Spark no longer listens.

`pyspark.daemon` (4.0 to 4.2) prints a traceback if the last write of a worker fails because Spark closed the socket.
That is no error: a worker reports its own errors over the same socket, and Spark closed it because it needs no more.
It happens in two cases:

- A task is ended before its last row: every `LIMIT`, `toLocalIterator`. The write fails over any socket, with
  `BrokenPipeError` or `ConnectionResetError`. This module prints nothing for these two; all other errors are printed.
- A worker was idle for a minute, and Spark closes its socket. Over a Unix domain socket the worker's write fails, over
  TCP it does not. These are also the workers that look for a format, make a data source and plan its reads, and Spark
  runs those with `pyspark.daemon` whatever the settings say.

So a session is quiet with `spark.python.daemon.module=spark_mq.worker_daemon` and
`spark.python.unix.domain.socket.enabled=false` (the default of Spark). The Python of every machine needs this package
installed for the first: files that come with `--py-files` are not there yet when a daemon starts.

The daemon forks its workers, so it must not start threads: this module imports nothing that does.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_FAILED = 1

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run one task as `pyspark.daemon.worker` does; returns the exit status, 1 if Spark has closed the socket."""
    try:
        return _worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return _FAILED


def main() -> None:
    """Run the daemon until Spark closes its stdin."""
    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()
