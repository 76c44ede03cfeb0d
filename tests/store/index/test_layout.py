"""How many slots and entries index files have, as the files themselves show it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from spark_mq.errors import OptionError
from spark_mq.format.index_file import IndexLayout
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.index.folder import index_layout
from tests.support.index_stores import layout_of
from tests.support.stores import WORKLOAD

NAMES = ("20261121110042150", "20261121110042151")


def with_sizes(folder: Path, *sizes: int) -> Location:
    """A store with sparse index files of these sizes."""
    (folder / "index").mkdir()
    for name, size in zip(NAMES, sizes, strict=False):
        (folder / "index" / name).touch()
        os.truncate(folder / "index" / name, size)
    return Location.resolve(str(folder))


def shown(store: Location) -> IndexLayout:
    return index_layout(store, BrokerConf.of(None))


def test_files_of_the_default_size_have_the_default_layout(tmp_path: Path) -> None:
    size = IndexLayout().file_size
    assert shown(with_sizes(tmp_path, size, size)) == IndexLayout()


@pytest.mark.parametrize("sizes", [(1000,), (IndexLayout().file_size, 1000), (1000, IndexLayout().file_size)])
def test_files_that_are_not_full_do_not_show_another_layout(sizes: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="which does not show how many slots and entries"):
        shown(with_sizes(tmp_path, *sizes))


def test_full_files_show_it_unless_the_last_one_has_another_size(store: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(Path(store) / "index", tmp_path / "index"))
    location, right = Location.resolve(str(tmp_path)), layout_of(WORKLOAD)
    assert shown(location) == right
    last = max(copy.iterdir())
    os.truncate(last, right.file_size - 20)
    with pytest.raises(OptionError, match="which does not show how many slots and entries"):
        shown(location)
