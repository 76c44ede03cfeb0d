"""Outputs that are refused before anything is made. No Spark here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_mq.errors import OptionError, SparkMqError, StorageError
from spark_mq.indexer.output_folder import check_output, is_store_folder
from spark_mq.io.location import Location
from tests.support.stores import tree_of

TREES = ("consumequeue", "index")


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    """A folder with two stores, `this` and `other`."""
    for name in ("this", "other"):
        for file in ("commitlog/" + "0" * 20, "consumequeue/T/0/" + "0" * 20, "index/20261121110042164"):
            (tmp_path / name / file).parent.mkdir(parents=True)
            (tmp_path / name / file).write_bytes(b"x")
    return tmp_path


def check(output: str | Path, store: Path) -> None:
    check_output(Location.resolve(str(output)), Location.resolve(str(store)), TREES)


@pytest.mark.parametrize("store", ["this", "other"])
@pytest.mark.parametrize("inside", ["commitlog", "commitlog/new", "consumequeue/T/0", "consumequeue/new", "index/a/b"])
def test_inside_a_store(stores: Path, store: str, inside: str) -> None:
    before = tree_of(stores)
    with pytest.raises(OptionError, match=r"--output .* is inside "):
        check(stores / store / inside, stores / "this")
    assert tree_of(stores) == before


def test_by_a_relative_path(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stores / "this" / "commitlog")
    with pytest.raises(OptionError, match="is inside"):
        check("new", stores / "this")
    with pytest.raises(OptionError, match="is inside"):
        check("../../other/index", stores / "this")
    monkeypatch.chdir(stores)
    check("new", stores / "this")


def test_by_a_symbolic_link(stores: Path) -> None:
    os.symlink(stores / "this" / "consumequeue", stores / "link")
    with pytest.raises(OptionError, match="is inside"):
        check(stores / "link" / "new", stores / "other")


def test_a_log_that_is_a_symbolic_link(stores: Path) -> None:
    """Its folder on another disk is a commit log's, whatever its name and wherever the store is."""
    (stores / "this" / "commitlog").rename(stores / "disk")
    os.symlink(stores / "disk", stores / "this" / "commitlog")
    for store in ("this", "other"):
        with pytest.raises(OptionError, match="is inside"):
            check(stores / "disk" / "new", stores / store)


@pytest.mark.parametrize("store", ["this", "other"])
def test_a_tree_that_is_a_symbolic_link_into_a_store(stores: Path, store: str) -> None:
    """A job that continues puts its files into the tree, wherever it is."""
    (stores / "new").mkdir()
    os.symlink(stores / store / "consumequeue", stores / "new" / "consumequeue")
    with pytest.raises(OptionError, match="is a symbolic link to a tree of a store"):
        check(stores / "new", stores / "this")


def test_a_store_whose_own_tree_is_a_symbolic_link(stores: Path) -> None:
    (stores / "this" / "consumequeue").rename(stores / "disk")
    os.symlink(stores / "disk", stores / "this" / "consumequeue")
    check(stores / "this", stores / "this")


def test_a_store_that_a_tree_would_replace(stores: Path) -> None:
    (stores / "this").rename(stores / "index")
    with pytest.raises(OptionError, match="its index/ would take the place of the store"):
        check(stores, stores / "index")


@pytest.mark.parametrize("output", ["file", "file/new"])
def test_a_file(stores: Path, output: str) -> None:
    (stores / "file").touch()
    with pytest.raises(StorageError, match=r"file is a file; give the name of a folder"):
        check(stores / output, stores / "this")


@pytest.mark.parametrize("output", ["new", "new/commitlog", "new/index", "this", "other", "this/rebuilt"])
def test_all_else_is_allowed(stores: Path, output: str) -> None:
    check(stores / output, stores / "this")


def test_an_output_with_an_impossible_name(stores: Path) -> None:
    with pytest.raises(SparkMqError):
        check("", stores / "this")


def test_which_folders_have_a_lock(stores: Path) -> None:
    (stores / "elsewhere").mkdir()
    assert is_store_folder(Location.resolve(str(stores / "this")))
    assert not is_store_folder(Location.resolve(str(stores / "elsewhere")))
    (stores / "elsewhere" / "lock").write_bytes(b"lock")
    assert is_store_folder(Location.resolve(str(stores / "elsewhere")))
