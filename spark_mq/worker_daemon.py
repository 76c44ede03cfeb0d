"""Spark's Python daemon, without tracebacks of workers whose socket Spark has closed.

`pyspark.daemon` (4.0 to 4.2) prints a traceback if the last write of a worker fails because Spark closed the socket.
That is not an error: a worker reports its own errors over the same socket, and Spark closed the socket because it
needs no more rows. It happens in two cases:

- A task ends before its last row: with every `LIMIT` and `toLocalIterator`. The write fails over any socket, with
  `BrokenPipeError` or `ConnectionResetError`. This module prints nothing for these two; all other errors are printed.
- A worker was idle for a minute, and Spark closes its socket. Over a Unix domain socket the worker's write fails, over
  TCP it does not. The workers that look for a format, create a data source and plan its reads are such workers, too,
  and Spark runs these with `pyspark.daemon` regardless of the settings.

So a session is quiet with `spark.python.daemon.module=spark_mq.worker_daemon` and
`spark.python.unix.domain.socket.enabled=false` (the default of Spark). The first setting needs this package installed
in the Python of every machine: files of `--py-files` have not arrived yet when a daemon starts.

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
