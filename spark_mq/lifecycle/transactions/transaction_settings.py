"""The broker's settings for the checks of transactions."""

from __future__ import annotations

from dataclasses import dataclass

from spark_mq.errors import OptionError
from spark_mq.format.broker_version import TRANSACTION_CHECK_IN_30_SECONDS, BrokerVersions
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.retention import reserved_time


@dataclass(frozen=True)
class TransactionSettings:
    """The broker's settings for checks (`BrokerConfig`), in milliseconds.

    Attributes:
        timeout: The least age of a half message that is checked, `transactionTimeOut`.
        check_interval: The time between two rounds of checks, `transactionCheckInterval`.
        check_max: The number of checks after which a half message is discarded, `transactionCheckMax`.
        reserved: The age at which a half message is discarded without more checks, `fileReservedTime`.
    """

    timeout: int = 6_000
    check_interval: int = 30_000
    check_max: int = 15
    reserved: int = 72 * 3_600_000

    @classmethod
    def of(cls, conf: BrokerConf, versions: BrokerVersions) -> TransactionSettings:
        """The settings of a broker, or the defaults of its version; the shorter time where versions differ."""

        def setting(name: str, default: int) -> int:
            text = conf.settings.get(name, str(default)).strip()
            if not text.isdecimal() or len(text) > 18:
                raise OptionError(f"{conf.source}: {name}={text!r} is not a number")
            return int(text)

        is_long = versions.decide(TRANSACTION_CHECK_IN_30_SECONDS) is False
        return cls(
            setting("transactionTimeOut", cls.timeout),
            setting("transactionCheckInterval", 60_000 if is_long else cls.check_interval),
            setting("transactionCheckMax", cls.check_max),
            int(reserved_time(None, conf).value * 3_600_000),
        )
