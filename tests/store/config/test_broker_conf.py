from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.errors import OptionError
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from tests.support.stores import RealStore, usual_stores


def load(tmp_path: Path, content: bytes) -> BrokerConf:
    file = tmp_path / "broker.conf"
    file.write_bytes(content)
    return BrokerConf.load(Location.resolve(str(file)))


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\uzzzz", r"\u=1"])
def test_a_malformed_escape_is_an_option_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        load(tmp_path, text.encode())


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_a_real_broker_conf_gives_the_sizes_that_the_broker_used(store: RealStore) -> None:
    conf = BrokerConf.load(Location.resolve(str(store.broker_conf)))
    (fact,) = store.facts("store")
    assert conf.consume_queue_file_size == fact["mappedFileSizeConsumeQueue"]
    assert int(conf.settings["mappedFileSizeCommitLog"]) == fact["mappedFileSizeCommitLog"]
    assert conf.is_enabled("messageIndexEnable")


@pytest.mark.parametrize(("text", "size"), [("20", 20), ("21", 40), ("6000000", 6_000_000), ("1", 20)])
def test_the_queue_file_size_is_rounded_up_to_whole_units(text: str, size: int, tmp_path: Path) -> None:
    assert load(tmp_path, f"mappedFileSizeConsumeQueue={text}".encode()).consume_queue_file_size == size


def test_the_spelling_of_4_5_1_is_ignored_as_by_newer_brokers(tmp_path: Path) -> None:
    assert load(tmp_path, b"mapedFileSizeCommitLog=65536").commit_log_file_size is None
    assert load(tmp_path, b"mappedFileSizeCommitLog=65536").commit_log_file_size == 65536


@pytest.mark.parametrize("text", ["", "0", "-20", "x", "20.0", "1e3", "20 "])
def test_a_size_that_is_no_positive_number_is_refused(text: str, tmp_path: Path) -> None:
    conf = load(tmp_path, f"mappedFileSizeConsumeQueue={text}\n".encode())
    with pytest.raises(OptionError, match="mappedFileSizeConsumeQueue"):
        _ = conf.consume_queue_file_size


def test_settings_that_are_not_there_are_none(tmp_path: Path) -> None:
    conf = load(tmp_path, b"")
    assert (conf.consume_queue_file_size, conf.is_enabled("x")) == (None, False)
    assert conf.message_delay_level == DEFAULT_DELAY_LEVELS


def test_spaces_around_a_text_do_not_count(tmp_path: Path) -> None:
    conf = load(tmp_path, b"storeType = defaultRocksDB \nbrokerName=\n")
    assert conf.has_rocksdb_store
    assert (conf.text("brokerName", "a"), conf.text("brokerClusterName", "C")) == ("", "C")


@pytest.mark.parametrize(
    ("text", "enabled"),
    [("true", True), ("TRUE", True), ("true ", False), ("false", False), ("1", False), ("yes", False)],
)
def test_a_boolean_is_read_as_java_does(text: str, enabled: bool, tmp_path: Path) -> None:
    assert load(tmp_path, f"x={text}".encode()).is_enabled("x") == enabled


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"nowhere\.conf: cannot be read"):
        BrokerConf.load(Location.resolve(str(tmp_path / "nowhere.conf")))


def test_a_comment_that_is_no_utf8_does_not_matter(tmp_path: Path) -> None:
    assert load(tmp_path, b"# Gr\xf6\xdfe\nmappedFileSizeConsumeQueue=40").consume_queue_file_size == 40
