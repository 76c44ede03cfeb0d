from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.io.location import Location
from spark_mq.store.config.config_file import consumed_offsets, parse_fastjson
from tests.support.stores import RealStore, Unpack, usual_stores

MAIN, BACKUP = "consumerOffset.json", "consumerOffset.json.bak"


def store_with(folder: Path, **files: str | bytes) -> Location:
    (folder / "config").mkdir()
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (folder / "config" / {"main": MAIN, "backup": BACKUP}[name]).write_bytes(data)
    return Location.resolve(str(folder))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('{"offsetTable":{"t@g":{0:5,1:6}}}', {"offsetTable": {"t@g": {"0": 5, "1": 6}}}),
        ("{0:1}", {"0": 1}),
        ("{ -1 : 1 , 12:2}", {"-1": 1, "12": 2}),
        ('{\n\t0:{1:{2:"x"}}\n}', {"0": {"1": {"2": "x"}}}),
        ('{"0":5,1:6}', {"0": 5, "1": 6}),
        ('{"a":"{0:1,2:3}","b":",4:"}', {"a": "{0:1,2:3}", "b": ",4:"}),
        (r'{"quote\"{0:":1,2:"\\"}', {'quote"{0:': 1, "2": "\\"}),
        ('{"a":[1,2,{3:4}]}', {"a": [1, 2, {"3": 4}]}),
        ("[]", []),
        (r'{"half":"\ud800","whole":"\ud83d\ude00"}', {"half": "?", "whole": "\U0001f600"}),
    ],
)
def test_integer_keys_need_no_quotes(text: str, content: object) -> None:
    assert parse_fastjson(text) == content


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text('{},:"\\01a ', max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text('{},:"\\01a ', max_size=6), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(json_values)
def test_any_json_is_read_as_it_is(value: object) -> None:
    assert parse_fastjson(json.dumps(value)) == value


@pytest.mark.parametrize("text", ["", "{", "{0:}", "{a:1}", "{0 1}", '{"a":1', "nonsense", '"'])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_fastjson(text)


def test_the_highest_offset_of_all_groups_counts(tmp_path: Path) -> None:
    text = '{"offsetTable":{"t@g1":{0:5,1:6},"t@g2":{0:7,1:2},"u@g1":{3:1,4:0}}}'
    highest = {("t", 0): 7, ("t", 1): 6, ("u", 3): 1, ("u", 4): 0}
    assert consumed_offsets(store_with(tmp_path, main=text)) == highest


def test_a_file_that_a_broker_replaces_at_this_moment_is_its_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_with(tmp_path, main='{"offsetTable":{"t@g":{0:6}}}', backup='{"offsetTable":{"t@g":{0:5}}}')
    read = Location.read_bytes

    def read_bytes(file: Location) -> bytes:
        Path(tmp_path, "config", MAIN).unlink(missing_ok=True)
        return read(file)

    monkeypatch.setattr(Location, "read_bytes", read_bytes)
    assert consumed_offsets(store) == {("t", 0): 5}


def test_the_other_file_does_not_count_while_a_broker_replaces_this_one(tmp_path: Path) -> None:
    """`MixAll.string2File`@4.9.7 writes the backup, deletes the file, and renames the new one."""
    store = store_with(tmp_path, backup='{"offsetTable":{"t@g":{0:5}}}')
    other = tmp_path / "config/lmqConsumerOffset.json"
    other.write_text('{"offsetTable":{"t@g":{0:1}}}')
    os.utime(other, (1, 1))
    assert consumed_offsets(store) == {("t", 0): 5}


def test_a_group_s_name_can_hold_anything(tmp_path: Path) -> None:
    text = '{"offsetTable":{"%RETRY%g@a@b":{0:5}}}'
    assert consumed_offsets(store_with(tmp_path, main=text)) == {("%RETRY%g", 0): 5}


UNREADABLE = ["", "{", "nonsense", '{"offsetTable":{"t@g":5}}', '{"offsetTable":{"t@g":{"x":1}}}', b"\xff"]
UNREADABLE += [f'{{"offsetTable":{{"t@g":{{0:{number}}}}}}}' for number in ("Infinity", "1e999")]


@pytest.mark.parametrize("main", [None, *UNREADABLE, pytest.param("[" * 100_000, id="deep")])
def test_an_unreadable_file_falls_back_to_its_backup(main: str | bytes | None, tmp_path: Path) -> None:
    files = {"backup": '{"offsetTable":{"t@g":{0:5}}}', **({} if main is None else {"main": main})}
    assert consumed_offsets(store_with(tmp_path, **files)) == {("t", 0): 5}


def test_a_readable_file_hides_its_backup(tmp_path: Path) -> None:
    location = store_with(tmp_path, main='{"offsetTable":{}}', backup='{"offsetTable":{"t@g":{0:5}}}')
    assert consumed_offsets(location) == {}


@pytest.mark.parametrize("content", ["", "{", "null", "5", "[]", '{"offsetTable":{}}', "{}"])
def test_where_nothing_is_readable_nothing_was_consumed(content: str, tmp_path: Path) -> None:
    assert consumed_offsets(store_with(tmp_path, main=content, backup=content)) == {}


def test_a_store_without_config_has_no_offsets(tmp_path: Path) -> None:
    assert consumed_offsets(Location.resolve(str(tmp_path))) == {}


@given(st.binary(max_size=60))
def test_any_bytes_are_readable_or_not(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    location = store_with(tmp_path_factory.mktemp("garbage"), main=b'{"offsetTable":' + data)
    assert isinstance(consumed_offsets(location), dict)


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_no_group_of_a_real_store_is_ahead_of_its_queue(store: RealStore, unpacked: Unpack) -> None:
    ends = {(fact["topic"], fact["queueId"]): fact["max"] for fact in store.facts("queue")}
    folder = unpacked(store)
    offsets = consumed_offsets(Location.resolve(str(folder)))
    if (folder / "config" / MAIN).is_file() and b"@" in (folder / "config" / MAIN).read_bytes():
        assert offsets
    assert {queue: offset for queue, offset in offsets.items() if offset > ends.get(queue, 0)} == {}
