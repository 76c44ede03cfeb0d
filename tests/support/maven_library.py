"""The jars of a Java program that a test starts, from Maven Central."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from tests.broker.harness import HarnessError


def maven_library(project: Path) -> Path:
    """The folder of the jars that `pom.xml` in the folder `project` names; Maven fetches them once."""
    target = project / "target"
    target.mkdir(exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, sources = target / "built-from", (project / "pom.xml").read_text()
        if not stamp.exists() or stamp.read_text() != sources:
            shutil.rmtree(target / "lib", ignore_errors=True)
            command = ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), "process-classes"]
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
            if answer.returncode != 0:
                raise HarnessError(f"Maven cannot fetch the jars of {project.name}:\n{answer.stdout}{answer.stderr}")
            stamp.write_text(sources)
    return target / "lib"
