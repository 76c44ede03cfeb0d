"""Which line of brokers a store belongs to; a few rules differ between 4.9 and 5."""

from __future__ import annotations

from enum import StrEnum

from spark_mq.errors import ConfigError, OptionError, UnsupportedStoreError
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import load_config


class BrokerVersion(StrEnum):
    """The lines that this package knows."""

    V4_9 = "4.9"
    V5 = "5"


def parse_broker_version(text: str) -> BrokerVersion:
    """`4.9`, `4.9.7`, `5`, `5.3.3`, ... Raises `OptionError` for another."""
    if text == "4.9" or text.startswith("4.9."):
        return BrokerVersion.V4_9
    if text == "5" or text.startswith("5."):
        return BrokerVersion.V5
    raise OptionError(f"broker version {text!r} is neither 4.9 nor 5")


def detect_broker_version(store: Location) -> BrokerVersion:
    """What `config/topics.json` shows: from 5.0 on its `dataVersion` has a `stateVersion`. Without the file, 5."""
    try:
        found = load_config(store, "topics.json", lambda content: "stateVersion" in content["dataVersion"])
    except (ConfigError, UnsupportedStoreError):
        return BrokerVersion.V5
    return BrokerVersion.V4_9 if found is False else BrokerVersion.V5
