"""Fuzz the decoders of `targets` under coverage guidance: `python -m tests.fuzz.run --seconds 3600 [TARGET ...]`.

Each target runs in a process of its own, with a limit for its memory and for each input. Kernels run as Python, so that
coverage sees their branches. An error does not end the process: its input is kept in `build/fuzz/found/TARGET`, once
for each line that raises. Copy it to `tests/fuzz/found/TARGET`, where `test_found` tries it from then on.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

FOLDER = Path("build/fuzz")
MEMORY_MB = 1024
INPUT_SECONDS = 20
PART_INPUTS = 200_000
_TO_END = 600
"""Seconds that a process may need to begin and to end."""


def fuzz(target: str, seconds: int) -> bool:
    """Fuzz one target; says how many inputs were tried, and returns whether none failed.

    After `PART_INPUTS` another process goes on with the inputs that were kept: atheris itself takes up to 2 KiB of
    memory for each input that it tries, which a million times are more than the limit.
    """
    inputs, edges, memory, failed = 0, 0, 0, ""
    stop = time.monotonic() + seconds
    while not failed and (left := round(stop - time.monotonic())) > 0:
        part = fuzz_part(target, left)
        inputs, edges, memory = inputs + part.inputs, max(edges, part.edges), max(memory, part.memory)
        failed = part.failed
    print(f"{target}: {inputs:,} inputs, {edges:,} edges, {memory:,} MiB{failed}", flush=True)
    return not failed


class Part(NamedTuple):
    """What one process did: the inputs, the edges that they reached, its peak of memory in MiB, and what failed."""

    inputs: int
    edges: int
    memory: int
    failed: str


def fuzz_part(target: str, seconds: int) -> Part:
    """Fuzz one target in one process."""
    corpus, found = FOLDER / "corpus" / target, FOLDER / "found" / target
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    earlier = set(found.iterdir())
    command = [
        *(sys.executable, "-m", "tests.fuzz.run", "--one", target, str(corpus)),
        f"-max_total_time={seconds}",
        f"-runs={PART_INPUTS}",
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
    ]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    log = FOLDER / f"{target}.log"
    with log.open("wb") as output:
        try:
            limit = seconds + _TO_END
            status = subprocess.run(command, env=environment, stdout=output, stderr=output, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            status = -1
    if status == 0:
        (found / "current").unlink(missing_ok=True)
    text = log.read_text(errors="replace")
    tried = re.findall(r"stat::number_of_executed_units:\s*(\d+)", text) or re.findall(r"^#(\d+)", text, re.MULTILINE)
    covered, peak = re.findall(r"cov: (\d+)", text), re.findall(r"rss: (\d+)", text)
    kept = sorted(set(found.iterdir()) - earlier)
    failed = "" if status == 0 else f"; {'did not end' if status < 0 else f'ended with status {status}'}: see {log}"
    failed += f"; FAILED: {', '.join(map(str, kept))}" if kept else ""
    inputs, edges, memory = (int(numbers[-1]) if numbers else 0 for numbers in (tried, covered, peak))
    return Part(inputs, edges, memory, failed)


def run_one(target: str, arguments: list[str]) -> None:
    """Fuzz in this process, which then ends."""
    import atheris

    with atheris.instrument_imports(include=["spark_mq"]):
        from tests.fuzz.targets import TARGETS
    chosen = TARGETS[target]
    for number, seed in enumerate(chosen.seeds()):
        (Path(arguments[0]) / f"seed-{number}").write_bytes(seed[: chosen.max_len])
    found = FOLDER / "found" / target
    current = os.open(found / "current", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    places = set[str]()

    def run(data: bytes) -> None:
        # If the input takes too much time or memory, the process ends at once.
        os.ftruncate(current, os.pwrite(current, data, 0))
        try:
            chosen.run(data)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = re.sub(r"\W+", "-", f"{type(error).__name__}-{Path(last.filename).stem}-{last.lineno}")
            if place not in places:
                places.add(place)
                (found / place).write_bytes(data)
                traceback.print_exc()

    atheris.Setup([sys.argv[0], *arguments, f"-max_len={chosen.max_len}"], run)
    atheris.Fuzz()


def main() -> int:
    """Fuzz all targets, or those that are named."""
    if sys.argv[1:2] == ["--one"]:
        run_one(sys.argv[2], sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="by default all")
    parser.add_argument("--seconds", type=int, default=3600, help="for each target (default: %(default)s)")
    arguments = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: run .venv/bin/pip install -e '.[fuzz]'", file=sys.stderr)
        return 2
    from tests.fuzz.targets import TARGETS

    unknown = set(arguments.targets) - set(TARGETS)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    results = [fuzz(target, arguments.seconds) for target in arguments.targets or TARGETS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
