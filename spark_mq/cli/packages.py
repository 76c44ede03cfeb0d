"""Which `pip install` gives a command the package that it lacks."""

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
"""The extra of `spark-mq` that brings a package."""

_PYSPARK_LACKS = re.compile(r"\[PACKAGE_NOT_INSTALLED\] (\S+)")
"""How PySpark names a package that it needs: it does not give `ImportError.name`."""


def missing_package(error: ImportError) -> MissingPackageError | None:
    """The error of one line for an import that failed; None if a package is there, but broken or too old.

    Args:
        error: What `import` raised, or PySpark for it.

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
