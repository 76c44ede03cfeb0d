"""`python -m tests.compat.mutants`: small changes of the code, chosen at random, each of which a test must notice.

A mutant is one change in one function: another operator, number, condition or returned value, or a statement that is
left out. Those that no test notices are printed. The tests of some folders run once, and `coverage` says which lines
each of them runs. Then a process is forked for each mutant, which changes the function in memory, and runs the tests of
the changed line, the quickest first, until one of them fails. Tests with Spark, and long ones, are left out, and so are
compiled kernels. `NUMBA_DISABLE_JIT=1 python -m tests.compat.mutants format/kernels` changes them, as plain Python.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import math
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from resource import RLIMIT_CPU, setrlimit
from types import CodeType, FunctionType

import pytest
from coverage import Coverage
from hypothesis import Phase, settings

from tests.support.kernels import WITHOUT_JIT

FOLDERS = "format", "store", "verifier"
"""The folders of `spark_mq` that are changed, and of `tests` that must notice it, unless others are given."""
SHORT = 5.0 if WITHOUT_JIT else 2.0
"""A test that takes longer, in seconds of the processor, is left out, and one that fails without a mutant."""
ROCKSDB = Path("spark_mq/io/rocksdb.py")
"""Tests that run it are left out: RocksDB has threads, and waits without end in a forked process."""
SECONDS = 20
"""The tests of a mutant that begin within this time are run. One that makes them take twice as long is noticed."""

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    one: other
    for pair in (
        (ast.Lt, ast.LtE),
        (ast.Gt, ast.GtE),
        (ast.Eq, ast.NotEq),
        (ast.In, ast.NotIn),
        (ast.Is, ast.IsNot),
        (ast.Add, ast.Sub),
        (ast.Mult, ast.FloorDiv),
        (ast.LShift, ast.RShift),
        (ast.BitAnd, ast.BitOr),
        (ast.And, ast.Or),
    )
    for one, other in (pair, pair[::-1])
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """What a node becomes in each of its mutants."""
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) if type(op) in SWAPPED:
            yield _with(node, op=SWAPPED[type(op)]())
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            yield _with(node, ops=[SWAPPED[type(op)]()])
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
        case ast.Name(id=name) if name in NAMES:
            yield ast.Name(NAMES[name], node.ctx)
        case ast.If() | ast.IfExp():
            yield _with(node, test=ast.Constant(False))
            yield _with(node, test=ast.Constant(True))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield _with(node, value=ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.Continue() | ast.Break():
            yield ast.Pass()
    if isinstance(node, ast.AugAssign):
        yield ast.Pass()


def _with(node: ast.AST, **fields: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


Place = tuple[ast.AST, str, int | None, ast.AST]
"""What a mutant replaces: the parent of a node, the field, the number in the field's list, the new node."""


def places(tree: ast.AST) -> Iterator[Place]:
    """The places of all mutants, except types, decorators, defaults, and the texts of errors."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "args", "exc") and not isinstance(tree, ast.Call):
            continue
        for number, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from ((tree, name, number, other) for other in changed(child))
                yield from places(child)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The functions of a module and the methods of its classes, with their qualified names."""
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef):
                yield f"{node.name}.{inner.name}" if isinstance(node, ast.ClassDef) else inner.name, inner


@cache
def source(path: Path) -> str:
    """The text of a module, as it was when it was first asked for."""
    return path.read_text()


class Mutant:
    """A change of one function of a module; `lines` are those of the code that it replaces."""

    def __init__(self, path: Path, function: str, number: int) -> None:
        self.path, self.function = path, function
        tree = ast.parse(source(path))
        parent, field, place, node = list(places(dict(functions(tree))[function]))[number]
        old = getattr(parent, field) if place is None else getattr(parent, field)[place]
        before, after = (ast.unparse(one).replace("\n", " ")[:90] for one in (old, node))
        self.text = f"{path}:{old.lineno} {function}: {before} => {after}"
        asked = old.test if isinstance(old, ast.If) else old
        self.lines = range(asked.lineno, (asked.end_lineno or asked.lineno) + 1)
        if place is None:
            setattr(parent, field, node)
        else:
            getattr(parent, field)[place] = node
        self._tree = ast.fix_missing_locations(tree)

    @classmethod
    def every(cls, folders: Sequence[str]) -> list[tuple[Path, str, int]]:
        """What makes all mutants of some folders."""
        paths = [path for folder in folders for path in sorted(Path("spark_mq", folder).rglob("*.py"))]
        return [
            (path, function, number)
            for path in paths
            if WITHOUT_JIT or "kernels" not in path.parts
            for function, node in functions(ast.parse(source(path)))
            for number, _ in enumerate(places(node))
        ]

    def apply(self, live: Sequence[FunctionType]) -> None:
        """Give the function the changed code; `live` are the functions of this process."""
        codes = [compile(self._tree, str(self.path.resolve()), "exec")]
        for code in codes:
            codes += [one for one in code.co_consts if isinstance(one, CodeType)]
        (changed_code,) = [code for code in codes if code.co_qualname == self.function]
        for function in live:
            code = function.__code__
            if (code.co_filename, code.co_qualname) == (changed_code.co_filename, self.function):
                function.__code__ = changed_code


class Trials:
    """A plugin of pytest that runs all tests once, and then some of them on each mutant."""

    def __init__(self, folders: Sequence[str], seed: int, wanted: int) -> None:
        self.folders, self.seed, self.wanted = folders, seed, wanted
        self._results = os.fdopen(os.dup(1), "w")

    def pytest_collection(self) -> None:
        """Let Hypothesis look for no smaller example of a failure."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings.get_profile("spark_mq"), phases=phases)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests, and the mutants."""
        every = Mutant.every(self.folders)
        items = [item for item in session.items if "spark" not in item.fixturenames]  # type: ignore[attr-defined]
        seconds: dict[str, float] = {}
        measured = Coverage(data_file=None, include=["spark_mq/*"], config_file=False)
        measured.start()
        for item, following in zip(items, [*items[1:], items[0]], strict=True):
            measured.switch_context(item.nodeid)
            begun = time.process_time()
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds[item.nodeid] = time.process_time() - begun if not session.testsfailed else math.inf
            session.testsfailed = 0
        measured.stop()
        session._setupstate.teardown_exact(None)
        data = measured.get_data()
        with_threads = set[str]().union(*data.contexts_by_lineno(str(ROCKSDB.resolve())).values())
        short = {
            item.nodeid: item for item in items if seconds[item.nodeid] <= SHORT and item.nodeid not in with_threads
        }
        objects = gc.get_objects()
        live = [one for one in objects if isinstance(one, FunctionType)]
        self._caches = [one for one in objects if isinstance(one, _lru_cache_wrapper)]
        gc.disable()
        random.Random(self.seed).shuffle(every)
        tried = noticed = not_run = 0
        for one in every:
            mutant = Mutant(*one)
            contexts = data.contexts_by_lineno(str(mutant.path.resolve()))
            names = {name for line in mutant.lines for name in contexts.get(line, ())} & short.keys()
            if not names:
                not_run += 1
                continue
            chosen = sorted(names, key=seconds.__getitem__)
            status = self._run(session, mutant, [short[name] for name in chosen], live)
            tried, noticed = tried + 1, noticed + (status != 0)
            result = "does not end" if status < 0 else "noticed" if status else "SURVIVED"
            self._say(f"{result} {len(chosen)} tests {mutant.text}")
            if tried == self.wanted:
                break
        self._say(f"{noticed} of {tried} mutants noticed; {not_run} more are in lines that no short test runs")
        return True

    def _say(self, text: str) -> None:
        self._results.write(f"\n{text}\n")
        self._results.flush()

    def _run(
        self, session: pytest.Session, mutant: Mutant, items: Sequence[pytest.Item], live: Sequence[FunctionType]
    ) -> int:
        process = os.fork()
        if not process:
            setrlimit(RLIMIT_CPU, (2 * SECONDS, 2 * SECONDS))
            mutant.apply(live)
            for cache in self._caches:
                cache.cache_clear()
            for item, following in zip(items, [*items[1:], None], strict=True):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    os._exit(1)
                if time.process_time() > SECONDS:
                    break
            os._exit(0)
        _, status = os.waitpid(process, 0)
        return os.waitstatus_to_exitcode(status)


def main() -> None:
    """Try a sample of the mutants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--number", type=int, default=300, help="how many mutants are tried")
    parser.add_argument("folders", nargs="*", default=FOLDERS, help="as format, store/log (default: %(default)s)")
    arguments = parser.parse_args()
    quiet = ["-qq", "--tb=no", "--capture=sys", "--timeout=60"]
    tests = [f"tests/{folder}" for folder in arguments.folders]
    without = [part for name in ("logging", "cacheprovider", "xdist") for part in ("-p", f"no:{name}")]
    sys.exit(pytest.main([*quiet, *without, *tests], [Trials(arguments.folders, arguments.seed, arguments.number)]))


if __name__ == "__main__":
    main()
