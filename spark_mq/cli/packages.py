"""The error for a Python package that a command needs and that is not installed."""

from __future__ import annotations

import re

from spark_mq.errors import MissingPackageError

_EXTRAS = {
    "pyspark": "spark",
    "py4j": "spark",
    "delta": "delta",
    "grpc": "connect",
    "grpcio": "connect",
    "grpc_status": "connect",
    "googleapis-common-protos": "connect",
    "google": "connect",
    "zstandard": "connect",
}
"""The extra of `spark-mq` that installs a package, by the name of the package."""

_PYSPARK_LACKS = re.compile(r"\[PACKAGE_NOT_INSTALLED\] (\S+)")
"""The text with which PySpark names a missing package: it does not set `ImportError.name`."""


def missing_package(error: ImportError) -> MissingPackageError | None:
    """The error to print, with the `pip install` that helps; None if the package is there, but broken or too old.

    Args:
        error: The error of the `import`, or PySpark's error for it.
    """
    lacks = _PYSPARK_LACKS.search(str(error))
    if lacks is None and not isinstance(error, ModuleNotFoundError):
        return None
    name = lacks[1] if lacks else (error.name or "").partition(".")[0]
    if not name or name == "spark_mq":
        return None
    extra = _EXTRAS.get(name)
    install = f"'spark-mq[{extra}]'" if extra else name
    return MissingPackageError(f"this command needs the package {name}, which is not installed: pip install {install}")
