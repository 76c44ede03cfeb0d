"""The file of several stores, patterns of stores, and what is said of wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from spark_mq.errors import OptionError, StoreNotFoundError
from spark_mq.io.location import Location
from spark_mq.store.config.named_stores import (
    NamedStore,
    check_stores,
    is_pattern,
    load_stores,
    matching_stores,
    stores_text,
)
from tests.support.local_objects import local_objects


def write(folder: Path, entries: object) -> str:
    file = folder / "stores.json"
    file.write_text(json.dumps(entries))
    return str(file)


def test_names_are_those_of_the_file_or_of_the_settings_or_of_rocketmq(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("brokerClusterName=prod\nbrokerName=broker-b\n")
    file = write(
        tmp_path,
        [
            {"path": "a", "name": "first", "cluster": "c", "broker": "broker-a"},
            {"path": "/data/b", "broker_conf": "broker.conf"},
            {"path": "s3://bucket/c?region=eu", "broker": "broker-c", "options": {"mode": "FAILFAST"}},
        ],
    )
    stores = load_stores(file)
    assert [store.names for store in stores] == [
        ("c", "broker-a", "first"),
        ("prod", "broker-b", "/data/b"),
        ("DefaultCluster", "broker-c", "s3://bucket/c"),
    ]
    assert [store.path for store in stores] == [f"{tmp_path}/a", "/data/b", "s3://bucket/c?region=eu"]
    assert stores[1].broker_conf == str(tmp_path / "broker.conf")
    assert load_stores(stores_text(stores)) == stores


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "not a list of stores"),
        ({"path": "/a"}, "not a list of stores"),
        (["/a"], "store 1 is not an object"),
        ([{"path": "/a"}, {"name": "b"}], "store 2 has no path"),
        ([{"path": "/a", "brokr": "b"}], "unknown key brokr; similar: broker"),
        ([{"path": "/a", "name": 1}], "name is not a text"),
        ([{"path": "/a", "options": {"mode": 1}}], "options is not an object of texts"),
        ([{"path": "/a", "broker": " b"}], "' b' of its broker"),
        ([{"path": "/a", "broker": ""}], "'' of its broker"),
        ([{"path": "/a", "name": "x\n"}], "of its store"),
        ([{"path": "/a", "broker_conf": "/nowhere.conf"}], r"store 1 \(/a\): .*/nowhere.conf: cannot be read"),
        ([{"path": "/a"}, {"path": "/x/../a/"}], "store /a is given twice"),
        ([{"path": "/a", "name": "n"}, {"path": "/b", "name": "n"}], "stores /a and /b both have the names"),
    ],
)
def test_a_wrong_file_is_refused(entries: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=message):
        load_stores(write(tmp_path, entries))


def test_a_store_and_a_link_to_it_are_one_store(tmp_path: Path) -> None:
    (tmp_path / "broker-a").mkdir()
    (tmp_path / "broker-current").symlink_to("broker-a")
    entries = [{"path": str(tmp_path / name), "name": name} for name in ("broker-a", "broker-current")]
    with pytest.raises(OptionError, match=r"store .*/broker-current is given twice, also as .*/broker-a: each"):
        load_stores(write(tmp_path, entries))


def test_a_file_that_is_missing_or_no_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"file of stores .*/none.json cannot be read"):
        load_stores(str(tmp_path / "none.json"))
    (tmp_path / "stores.json").write_text("- path: /data/a\n")
    with pytest.raises(OptionError, match=r"stores.json is not JSON"):
        load_stores(str(tmp_path / "stores.json"))
    with pytest.raises(OptionError, match="option stores is not JSON"):
        load_stores("[" * 100_000)


def test_secrets_of_a_path_are_in_no_name_and_no_text() -> None:
    store = NamedStore.of("s3://me:hidden@bucket/a?session_token=hidden")
    assert "hidden" not in f"{store} {store!r} {store.names}"
    with pytest.raises(OptionError) as caught:
        check_stores([store, store])
    assert "hidden" not in str(caught.value)


def test_a_table_gets_the_columns_of_the_store_first() -> None:
    store = NamedStore.of("/a", cluster="c", broker="b", store="s")
    assert store.with_columns(pa.table({"x": [1, 2]})).to_pylist() == [
        {"cluster": "c", "broker": "b", "store": "s", "x": 1},
        {"cluster": "c", "broker": "b", "store": "s", "x": 2},
    ]


def test_patterns_match_folders_with_a_log(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b", "other", ".hidden", "deep/broker-c"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    (tmp_path / "broker-empty").mkdir()
    (tmp_path / "broker-file").write_text("")

    def names(pattern: str) -> list[str]:
        return [path.removeprefix(f"{tmp_path}/") for path in matching_stores(f"{tmp_path}/{pattern}")]

    assert names("broker-*") == ["broker-a", "broker-b"]
    assert names("*") == ["broker-a", "broker-b", "other"]
    assert names("{other,broker-[ab]}") == ["broker-a", "broker-b", "other"]
    assert names("*/broker-[a-z]") == ["deep/broker-c"]
    assert names("d*/broker-c") == ["deep/broker-c"]
    with pytest.raises(StoreNotFoundError, match=r"no store matches .*/none-\*"):
        names("none-*")


def test_a_name_with_characters_of_patterns_is_no_pattern_if_it_exists(tmp_path: Path) -> None:
    assert is_pattern(f"{tmp_path}/s[ab]")
    (tmp_path / "s[ab]").mkdir()
    assert not is_pattern(f"{tmp_path}/s[ab]")
    patterns = {
        "/a*": True,
        "/{a,b}": True,
        "/{a}": False,
        "s3://b/[a]": False,
        "s3://b/*": True,
        "s3://b/a?x=*": False,
    }
    assert {path: is_pattern(path) for path in patterns} == patterns


def test_patterns_of_a_bucket_keep_settings_and_hide_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bucket/x/broker-a", "bucket/x/broker-b", "bucket/x/broker[c]"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
        (tmp_path / name / "commitlog" / "0").touch()

    def resolve(uri: str) -> Location:
        return local_objects(tmp_path, uri.partition("?")[0].removeprefix("s3://me:hidden@"), secret_key="hidden")

    monkeypatch.setattr(Location, "resolve", resolve)
    settings = resolve("bucket").uri.partition("?")[2]
    assert settings.endswith("secret_key=hidden")
    assert matching_stores("s3://me:hidden@bucket/x/broker-*?region=eu") == [
        f"s3://folder/bucket/x/broker-a?{settings}",
        f"s3://folder/bucket/x/broker-b?{settings}",
    ]
    assert matching_stores("s3://me:hidden@bucket/*/{broker-b,broker[c]}") == [
        f"s3://folder/bucket/x/broker-b?{settings}",
        f"s3://folder/bucket/x/broker[c]?{settings}",
    ]
    with pytest.raises(StoreNotFoundError) as caught:
        matching_stores("s3://me:hidden@bucket/none-*")
    assert "hidden" not in str(caught.value)
