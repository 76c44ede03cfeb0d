"""A running cluster in the place of STORE: `rocketmq://` and the addresses of name servers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from spark_mq.errors import OptionError
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.tables.table import LIVE_SCHEME

if TYPE_CHECKING:
    from spark_mq.live.options import LiveOptions

OR_CLUSTER = f", or a running cluster: {LIVE_SCHEME}NAME_SERVER:9876"
"""The help of STORE goes on with this if the command also asks a running cluster."""


def is_cluster(source: object) -> bool:
    """Whether the value of STORE is the address of a running cluster."""
    return str(source).startswith(LIVE_SCHEME)


def cluster_options(client_conf: str | None, address: str, **options: object) -> LiveOptions:
    """How a cluster is read: the options of a file (`--client-conf`), and those of `options` that are not None.

    Raises:
        OptionError: An option is unknown, has an invalid value, or has no effect.
    """
    from spark_mq.live.options import parse_live_options

    given = {name: str(value) for name, value in options.items() if value is not None}
    return parse_live_options(BrokerConf.of(client_conf).settings | given | {"path": address})


def refuse_client_conf(arguments: argparse.Namespace) -> None:
    """Raise `OptionError` if `--client-conf` is given, and no running cluster is."""
    if getattr(arguments, "client_conf", None) is not None:
        raise OptionError(f"--client-conf has only an effect on a running cluster, {LIVE_SCHEME}NAME_SERVER:9876")
