"""How kernels are compiled and kept: once for each content of the sources, wherever the package is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.make_zip import make_zip
from spark_mq.format.kernels import cache
from spark_mq.format.kernels.kernel import KERNELS, compile_kernels
from tests.support.kernels import WITHOUT_JIT
from tests.support.stores import PROJECT

USE = """
import numpy as np
from spark_mq.format.kernels import java_string
print(java_string.__file__, java_string.hash_code(np.frombuffer(b"hello", np.uint8), 0, 5))
"""
WITHOUT_NUMBA = "import sys; sys.modules['numba'] = None\n"
FOLDER = "from spark_mq.format.kernels.cache import cache_folder; print(cache_folder())"
JAVA_HASH_OF_HELLO = 99162322


def run(program: str, package: Path, home: Path, **more: str) -> str:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(package), "HOME": str(home), **more}
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, env=environment, cwd=package.parent, capture_output=True, text=True, check=True, timeout=300
    ).stdout


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The user's cache and the fallback for a user without one, both empty."""
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    cache.cache_folder.cache_clear()
    yield home / "spark-mq", temporary / f"spark-mq-{os.geteuid()}"
    cache.cache_folder.cache_clear()


def test_a_package_in_a_zip_uses_the_kernels_that_another_zip_has_compiled(tmp_path: Path) -> None:
    first = make_zip(tmp_path / "first" / "spark_mq.zip")
    second = make_zip(tmp_path / "second" / "spark_mq.zip")
    home = tmp_path / "home"
    assert run(USE, first, home) == f"{first}/spark_mq/format/kernels/java_string.py {JAVA_HASH_OF_HELLO}\n"
    compiled = {file: file.stat().st_mtime_ns for file in home.rglob("*.o")}
    assert compiled
    said = run(f"{WITHOUT_NUMBA}{USE}", second, home)
    assert said == f"{second}/spark_mq/format/kernels/java_string.py {JAVA_HASH_OF_HELLO}\n"
    assert {file: file.stat().st_mtime_ns for file in home.rglob("*.o")} == compiled
    for file in compiled:  # a machine that failed while it wrote the file
        file.write_bytes(file.read_bytes()[:-1])
    assert run(USE, second, home) == said


def test_a_change_of_a_constant_that_a_kernel_uses_needs_other_kernels(tmp_path: Path) -> None:
    package = make_zip(tmp_path / "package" / "spark_mq.zip")
    changed = tmp_path / "package" / "changed.zip"
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            more = b"\nMORE = 1\n" if name == "spark_mq/format/record.py" else b""
            new.writestr(name, old.read(name) + more)
    folders = {run(FOLDER, file, tmp_path) for file in (package, changed)}
    assert len(folders) == 2
    assert run(FOLDER, PROJECT, tmp_path) in folders


def test_a_user_without_a_home_has_kernels_in_a_private_folder(tmp_path: Path) -> None:
    folder = Path(run(FOLDER, PROJECT, Path("/dev/null"), TMPDIR=str(tmp_path)).strip())
    assert folder.parent.parent == tmp_path / f"spark-mq-{os.geteuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("shared", ["", "kernels"])
def test_a_folder_that_others_can_write_is_not_used(roots: tuple[Path, Path], shared: str) -> None:
    home, temporary = roots
    (home / "kernels").mkdir(parents=True)
    (home / shared).chmod(0o777)
    folder = cache.cache_folder()
    assert folder is not None
    assert folder.parent.parent == temporary


def test_a_link_to_a_folder_is_not_used(roots: tuple[Path, Path], tmp_path: Path) -> None:
    home, temporary = roots
    home.parent.mkdir()
    for root in (home, temporary):
        root.symlink_to(tmp_path)
    assert cache.cache_folder() is None


@pytest.mark.skipif(WITHOUT_JIT, reason="nothing is compiled")
def test_every_kernel_of_the_package_is_compiled_ahead() -> None:
    written = [
        name
        for file in (PROJECT / "spark_mq").rglob("*.py")
        for name in re.findall(r"^@kernel\ndef (\w+)", file.read_text(), re.MULTILINE)
    ]
    assert compile_kernels() == len(written) > 30
    assert sorted(kernel.__name__ for kernel in KERNELS) == sorted(written)
    # A kernel that raises, or makes an array, needs functions of numba, and LLVM ends a process that lacks them.
    load = "from spark_mq.format.kernels.kernel import compile_kernels; print(compile_kernels())"
    folder = cache.cache_folder()
    assert folder is not None
    assert (
        run(f"{WITHOUT_NUMBA}{load}", PROJECT, Path.home(), NUMBA_CACHE_DIR=os.environ.get("NUMBA_CACHE_DIR", ""))
        == f"{len(written)}\n"
    )


def test_only_the_newest_versions_are_kept(roots: tuple[Path, Path]) -> None:
    home, _ = roots
    for number in range(8):
        (home / "kernels" / f"version-{number}").mkdir(parents=True, mode=0o700)
        os.utime(home / "kernels" / f"version-{number}", (number, number))
    folder = cache.cache_folder()
    assert folder is not None
    assert {path.name for path in folder.parent.iterdir()} == {*(f"version-{n}" for n in range(3, 8)), folder.name}
