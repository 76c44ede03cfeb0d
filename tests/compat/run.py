"""`make compat`: the smoke test on every Spark and Python that the README names, each in an environment of its own.

The environments lie outside of the tree and are kept, so that only the first run has to download them. What each check
came to is written into the README, between its `compat` marks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.compat.table import table_head, table_line, write_table
from tests.support.stores import PROJECT

SPARKS = ("4.0.5", "4.1.4", "4.2.0", "4.3.0")
"""The newest of each line, and the one that the project is developed with."""

PYTHONS = ("3.11", "3.12", "3.13")
DEVELOPED_WITH = ("4.2.0", "3.11")

Outcome = dict[str, str]


def main() -> int:
    """Every Spark on one Python, and every other Python that is here on one Spark; 1 where a check did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the environments are kept")
    folder = parser.parse_args().folder
    main_spark, main_python = DEVELOPED_WITH
    pairs = [(spark, main_python) for spark in SPARKS] + [(main_spark, python) for python in PYTHONS[1:]]
    lines: list[str] = []
    status = 0
    for spark, python in pairs:
        interpreter = shutil.which(f"python{python}")
        if interpreter is None or subprocess.run([interpreter, "-c", ""], capture_output=True).returncode:
            print(f"Python {python} is not here: left out", file=sys.stderr)
            continue
        environment = install(folder / f"spark-{spark}-python-{python}", interpreter, spark)
        found = smoke(environment)
        # SPARK_TESTING lets Spark take any free port for the server, which is 15002 otherwise.
        connect = smoke(environment, SPARK_REMOTE="local[2]", SPARK_TESTING="yes")
        checks = [name for name in found if name not in ("spark", "python")]
        outcomes = [both(found[name], connect[name]) for name in checks]
        lines = lines or table_head("Spark", "Python", *checks)
        lines.append(table_line(found["spark"], found["python"], *outcomes))
        print(lines[-1], flush=True)
        status |= any(outcome != "yes" for outcome in outcomes)
    write_table(PROJECT / "README.md", "compat", lines)
    return status


def install(folder: Path, interpreter: str, spark: str) -> Path:
    """An environment with that Spark and the package as it is now; returns its Python."""
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
        # The support of the tests, which the smoke test uses, imports pytest.
        subprocess.run([*pip, f"pyspark[connect]=={spark}", "pytest", str(PROJECT)], check=True)
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(PROJECT)], check=True)
    return python


def smoke(python: Path, **more: str) -> Outcome:
    """What the smoke test said in an environment."""
    ours = ("SPARK_", "PYSPARK_", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [str(python), str(PROJECT / "tests" / "compat" / "smoke.py")]
    done = subprocess.run(command, env=kept | more, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stderr[-3000:]}")
    found: Outcome = json.loads(done.stdout.splitlines()[-1])
    return found


def both(classic: str, connect: str) -> str:
    """What to say of a check without and with Spark Connect."""
    return classic if classic == connect else f"{classic}; Connect: {connect}"


if __name__ == "__main__":
    sys.exit(main())
