"""`spark-mq`: one entry point, with a sub-command for each job, and what is missing if a package is not installed.

Results go to stdout, progress and errors to stderr; `exit_status` has the statuses.
"""

from __future__ import annotations

import io
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from spark_mq.cli.arguments import join_relative_times, place_stores_file
from spark_mq.cli.commands import parser_for
from spark_mq.cli.exit_status import FAILED, FOUND, INTERRUPTED, INTERRUPTED_LINE, NOT_UNDERSTOOD
from spark_mq.cli.output import say, visible
from spark_mq.cli.output.terminal import discard_stdout
from spark_mq.errors import MissingPackageError, OptionError, SparkMqError
from spark_mq.job.task_errors import with_remedy

_EXTRAS = {
    **dict.fromkeys(("pyspark", "py4j"), "spark"),
    "delta": "delta",
    **dict.fromkeys(("jinja2", "markupsafe", "matplotlib", "PIL"), "report"),
    "pysail": "sail",
    **dict.fromkeys(("grpc", "grpcio", "grpc_status", "googleapis-common-protos", "google", "zstandard"), "connect"),
}
"""The extra of `spark-mq` that installs a package, by the name of the package."""

_PYSPARK_LACKS = re.compile(r"\[PACKAGE_NOT_INSTALLED\] (\S+)")
"""The text with which PySpark names a missing package: it does not set `ImportError.name`."""


def missing_package(error: ImportError) -> MissingPackageError | None:
    """The error to print, with the `pip install` that helps; None if the package is there, but broken or too old."""
    lacks = _PYSPARK_LACKS.search(str(error))
    if lacks is None and not isinstance(error, ModuleNotFoundError):
        return None
    name = lacks[1] if lacks else (error.name or "").partition(".")[0]
    if not name or name == "spark_mq":
        return None
    extra = _EXTRAS.get(name)
    install = f"'spark-mq[{extra}]'" if extra else name
    return MissingPackageError(f"this command needs the package {name}, which is not installed: pip install {install}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    if sys.stdout is None:  # `spark-mq ... >&-`
        print("spark-mq: stdout is closed", file=sys.stderr)
        return FAILED
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # text that a terminal's encoding lacks
    with warnings.catch_warnings():
        warnings.showwarning = partial(_show_warning, warnings.showwarning)
        return _run(sys.argv[1:] if arguments is None else arguments)


def _run(arguments: Sequence[str]) -> int:
    words = place_stores_file(join_relative_times(arguments))
    parsed = parser_for(words).parse_args(words)
    try:
        status = int(parsed.run(parsed))
        sys.stdout.flush()
    except SparkMqError as error:
        print(f"spark-mq: {error}", file=sys.stderr)
        return NOT_UNDERSTOOD if isinstance(error, OptionError) else FAILED
    except BrokenPipeError:  # of rows: a report with a verdict has its own status (`print_answer`)
        discard_stdout()
        return FOUND
    except OSError as error:  # of a file or a network; no part of the package expects it
        say(with_remedy(str(error)))
        return FAILED
    except ImportError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        say(str(missing))
        return FAILED
    except KeyboardInterrupt as interrupt:  # of a command without Spark
        print(f"{INTERRUPTED_LINE}{visible(str(interrupt))}", file=sys.stderr)
        return INTERRUPTED
    return status


def _show_warning(
    show_others: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any, **rest: Any
) -> None:
    """Print a warning for users as one line, without the place in the code; show all others as before."""
    if category is UserWarning:
        say(str(message))
    else:
        show_others(message, category, *place, **rest)


if __name__ == "__main__":
    sys.exit(main())
