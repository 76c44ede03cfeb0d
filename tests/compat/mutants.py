"""`python -m tests.compat.mutants`: small changes of the code, chosen at random, each of which a test must notice.

A mutant is one change in one function: another operator, number, condition or returned value, or a statement that is
left out. Those that no test notices are printed. Tools for this start a Python for each mutant, or record first which
test calls which function of the package: on this tree both take longer than the mutants. Here the tests of some modules
run once; then a process is forked for each mutant, which changes the function in memory, and runs the tests that call
it.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import os
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest
from hypothesis import Phase, settings

SECONDS = 600
"""A mutant that runs longer is noticed: it does not end."""

TESTS = {
    "format/record": "test_record test_message_row kernels/test_crc kernels/test_frames ../store/log/test_time_pruning",
    "format/properties": "test_properties test_record",
    "format/message_id": "test_message_id test_message_row",
    "format/compression": "test_compression",
    "format/dispatch": "kernels/test_keys test_record",
    "format/index_file": "test_index_file test_index_placement test_index_query",
    "format/consume_queue_ext": "test_consume_queue_ext",
    "format/broker_version": "test_broker_version",
    "store/config/checkpoint": "../test_boot",
    "store/lacking_messages": "test_boot_losses",
    "store/boot": "test_boot test_boot_losses",
    "store/recovery": "test_recovery test_boot_losses",
    "store/log/live_reader": "test_last_record",
    "store/log/segment_files": "test_segment_files test_commit_log",
    "verifier/queue_file": "test_queue_file test_near_misses test_damages",
    "verifier/index_file": "test_index_damages test_near_misses test_damages",
    "verifier/records": "test_damages test_near_misses",
    "verifier/log_bounds": "test_near_misses test_damages",
    "verifier/log_check": "test_damages test_near_misses",
    "verifier/entry_match": "test_index_entries test_index_damages",
}
"""By module: the files of its tests, which are in the same folder of `tests`, the quickest first."""

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


class Mutant:
    """A change of one function of a module."""

    def __init__(self, path: Path, function: str, number: int) -> None:
        self.path, self.function = path, function
        tree = ast.parse(path.read_text())
        parent, field, place, node = list(places(dict(functions(tree))[function]))[number]
        old = getattr(parent, field) if place is None else getattr(parent, field)[place]
        before, after = (ast.unparse(one).replace("\n", " ")[:90] for one in (old, node))
        self.text = f"{path}:{old.lineno} {function}: {before} => {after}"
        if place is None:
            setattr(parent, field, node)
        else:
            getattr(parent, field)[place] = node
        self._tree = ast.fix_missing_locations(tree)

    def apply(self, live: Sequence[FunctionType]) -> None:
        """Give the function the changed code; `live` are the functions of this process."""
        codes = [compile(self._tree, str(self.path.resolve()), "exec")]
        for code in codes:
            codes += [one for one in code.co_consts if isinstance(one, CodeType)]
        (changed_code,) = [code for code in codes if code.co_qualname == self.function]
        for function in live:
            if _name(function.__code__) == (str(self.path.resolve()), self.function):
                function.__code__ = changed_code


def _name(code: CodeType) -> tuple[str, str]:
    """The file and the qualified name of a function; those of the function around it, if it is inside of one."""
    return code.co_filename, code.co_qualname.partition(".<locals>")[0]


class Trials:
    """A plugin of pytest that runs all tests once, and then some of them on each mutant."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self.mutants = mutants
        self.noticed = 0
        self._results = os.fdopen(os.dup(1), "w")

    def pytest_collection(self) -> None:
        """Let Hypothesis look for no smaller example of a failure."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings.get_profile("spark_mq"), phases=phases)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests, and the mutants."""
        calls: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
        seconds: dict[pytest.Item, float] = {}
        for number, item in enumerate(session.items):
            called: set[CodeType] = set()

            def profile(frame: FrameType, event: str, argument: object, called: set[CodeType] = called) -> None:
                called.add(frame.f_code)

            following = session.items[(number + 1) % len(session.items)]
            begun = time.process_time()
            sys.setprofile(profile)
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            sys.setprofile(None)
            seconds[item] = time.process_time() - begun
            for name in set(map(_name, called)):
                calls[name].append(item)
        assert not session.testsfailed, "a test fails without a mutant"
        session._setupstate.teardown_exact(None)
        live = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
        gc.disable()
        for mutant in self.mutants:
            items = sorted(calls[str(mutant.path.resolve()), mutant.function], key=seconds.__getitem__)
            begun = time.monotonic()
            status = self._run(session, mutant, items, live) if items else 0
            self.noticed += status != 0
            result = {0: "SURVIVED", 1: "noticed"}.get(status, "does not end")
            self._results.write(f"{result} {len(items)} tests {time.monotonic() - begun:.0f} s {mutant.text}\n")
            self._results.flush()
        gc.enable()
        return True

    def _run(
        self, session: pytest.Session, mutant: Mutant, items: Sequence[pytest.Item], live: Sequence[FunctionType]
    ) -> int:
        process = os.fork()
        if not process:
            os.setpgid(0, 0)
            mutant.apply(live)
            for number, item in enumerate(items):
                following = items[number + 1] if number + 1 < len(items) else None
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    os._exit(1)
            os._exit(0)
        deadline = time.monotonic() + SECONDS
        while (done := os.waitpid(process, os.WNOHANG)) == (0, 0):
            if time.monotonic() > deadline:
                os.killpg(process, signal.SIGKILL)
            time.sleep(0.02)
        return done[1] >> 8 if os.WIFEXITED(done[1]) else 2


def main() -> None:
    """Try a sample of the mutants of each module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help=f"some of {', '.join(TESTS)} (default: all)")
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--per-cent", type=float, default=10, help="how many of the mutants of a module are tried")
    arguments = parser.parse_args()
    tried = noticed = 0
    for module in arguments.modules or TESTS:
        path = Path("spark_mq", f"{module}.py")
        every = [
            (path, function, number)
            for function, node in functions(ast.parse(path.read_text()))
            for number, _ in enumerate(places(node))
        ]
        chosen = random.Random(arguments.seed).sample(every, round(len(every) * arguments.per_cent / 100))
        trials = Trials([Mutant(*one) for one in chosen])
        files = [str(Path("tests", module).parent / f"{name}.py") for name in TESTS[module].split()]
        pytest.main(
            ["-qq", "--tb=no", "--capture=sys", "-p", "no:logging", "-p", "no:cacheprovider", "-p", "no:xdist", *files],
            [trials],
        )
        tried, noticed = tried + len(chosen), noticed + trials.noticed
        print(f"{module}: {trials.noticed} of {len(chosen)} noticed; in all {noticed} of {tried}", flush=True)


if __name__ == "__main__":
    main()
