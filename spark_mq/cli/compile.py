"""`spark-mq compile`, and the same in the background while the JVM of a command starts."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from spark_mq.cli.exit_status import FAILED, FOUND

_DESCRIPTION = """\
Compile the loops that read messages, as the first query or rebuild of a user on a machine does otherwise.

The compiled code is kept in ~/.cache/spark-mq. NUMBA_CACHE_DIR or XDG_CACHE_HOME name another folder. Code that is
there already is not compiled again.
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    command = commands.add_parser(
        "compile",
        help="compile the loops that read messages before the first query does",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compile all kernels, and print their number, the seconds, and the folder."""
    from spark_mq.format.kernels.cache import cache_folder
    from spark_mq.format.kernels.compile import compile_kernels

    folder = cache_folder()
    if folder is None:
        print(
            "spark-mq: there is no folder for compiled code that only this user can write: set NUMBA_CACHE_DIR to one",
            file=sys.stderr,
        )
        return FAILED
    started = time.monotonic()
    number = compile_kernels()
    print(f"{number} kernels are compiled ({time.monotonic() - started:.1f} s): {folder}")
    return FOUND


def compile_in_background(modules: Sequence[str] = ()) -> None:
    """Start a process that compiles kernels, if some are missing in the cache.

    A JVM takes seconds to start, and uses one core. A task that needs a kernel in the meantime waits for it, or
    compiles another one.

    Args:
        modules: The modules of the kernels, see `compile_kernels`.
    """
    from spark_mq.format.kernels.cache import cache_folder, is_compiled

    if not is_compiled(modules) and cache_folder() is not None and "NUMBA_DISABLE_JIT" not in os.environ:
        threading.Thread(target=_compile_elsewhere, args=(modules,), daemon=True).start()


def _compile_elsewhere(modules: Sequence[str]) -> None:
    with suppress(OSError):
        subprocess.run(
            [sys.executable, "-m", "spark_mq.format.kernels.compile", *modules],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C ends the command; the kernels are there for the next one
            check=False,
        )
