"""The broker version of a store, as far as rules for its files differ: 4.9 or 5."""

from __future__ import annotations

from enum import StrEnum

from spark_mq.errors import ConfigError, OptionError, UnsupportedStoreError
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import load_config
from spark_mq.store.config.sourced import NOTHING_TELLS, Sourced


class BrokerVersion(StrEnum):
    """The release lines whose rules this package knows."""

    V4_9 = "4.9"
    V5 = "5"


def parse_broker_version(text: str) -> BrokerVersion:
    """The release line of a version such as `4.9`, `4.9.7`, `5` or `5.3.3`.

    Raises:
        OptionError: The version is of another release line.
    """
    if text == "4.9" or text.startswith("4.9."):
        return BrokerVersion.V4_9
    if text == "5" or text.startswith("5."):
        return BrokerVersion.V5
    raise OptionError(f"broker version {text!r} is neither 4.9 nor 5")


def detect_broker_version(store: Location) -> BrokerVersion:
    """The release line of the broker that wrote the store; see `find_broker_version`."""
    return find_broker_version(store).value


def find_broker_version(store: Location) -> Sourced[BrokerVersion]:
    """The release line that `config/topics.json` shows: since 5.0 its `dataVersion` contains a `stateVersion`.

    5 if the file is missing, unreadable or in RocksDB.
    """
    try:
        has_state_version = load_config(store, "topics.json", lambda content: "stateVersion" in content["dataVersion"])
    except (ConfigError, UnsupportedStoreError):
        has_state_version = None
    if has_state_version is None:
        return Sourced(BrokerVersion.V5, NOTHING_TELLS)
    return Sourced(BrokerVersion.V5 if has_state_version else BrokerVersion.V4_9, "config/topics.json shows it")
