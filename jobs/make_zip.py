"""`make zip`: writes the package as one file for `spark-submit --py-files`.

The file contains only this package. The packages that it needs (pyarrow, pandas, numba) contain machine code, which
Python cannot load from a zip file.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("spark_mq", "pyspark_rocketmq")
DEFAULT_FILE = PROJECT / "dist" / "spark_mq.zip"


def make_zip(file: Path = DEFAULT_FILE) -> Path:
    """Write the package to `file`, and return `file`; its folder is created if it does not exist."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for path in sorted((PROJECT / package).rglob("*")):
                if path.is_file() and path.parent.name != "__pycache__":
                    archive.write(path, path.relative_to(PROJECT))
    return file


if __name__ == "__main__":
    print(make_zip())
