"""Spark's Python daemon, without tracebacks for workers whose output nobody reads any more.

Spark stops reading a worker's output before its end wherever it needs no more rows: with every `LIMIT`, in
`toLocalIterator`, and when it has the plan of a data source. The worker's last write then fails, over a Unix domain
socket with `BrokenPipeError`, over TCP with that or with `ConnectionResetError`, and `pyspark.daemon` (4.0 to 4.2)
prints a traceback for it. That is no error: what a worker has to say of its own errors, it writes to the same socket,
and a Spark that closed the socket does not want to know. All other errors are printed as before.

A session uses this module with `spark.python.daemon.module=spark_mq.worker_daemon`. The Python of every machine needs
this package installed for it: files that come with `--py-files` are not there yet when a daemon starts.

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
