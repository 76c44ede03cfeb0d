"""`make zip`, or `python make_zip.py [FILE]`: writes the package as one file for `spark-submit --py-files`.

The file contains only this package. The packages that it needs (pyarrow, pandas, numba) contain machine code, which
Python cannot load from a zip file.
"""

from __future__ import annotations

import argparse
import sysconfig
import zipfile
from pathlib import Path

PACKAGES = ("spark_mq", "pyspark_rocketmq")
DEFAULT_FILE = Path("dist") / "spark_mq.zip"


def package_folder() -> Path:
    """The folder of the packages: the source tree, or that of installed packages."""
    tree = Path(__file__).resolve().parent.parent
    return tree if all((tree / package).is_dir() for package in PACKAGES) else Path(sysconfig.get_path("purelib"))


def make_zip(file: Path = DEFAULT_FILE) -> Path:
    """Write the package to `file`, and return `file`; its folder is created if it does not exist."""
    file.parent.mkdir(parents=True, exist_ok=True)
    folder = package_folder()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for path in sorted((folder / package).rglob("*")):
                if path.is_file() and path.parent.name != "__pycache__":
                    archive.write(path, path.relative_to(folder))
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the package as one file for spark-submit --py-files.")
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, default=DEFAULT_FILE, help="default: %(default)s")
    print(make_zip(parser.parse_args().file))
