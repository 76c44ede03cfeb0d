"""The broker's settings file of a command: given as an argument, named by the environment, or beside the store."""

from __future__ import annotations

import os
import sys
from pathlib import Path, PurePosixPath

from spark_mq.cli.output import visible
from spark_mq.errors import OptionError

VARIABLE = "SPARK_MQ_BROKER_CONF"
_BESIDE = ("broker.conf", "conf/broker.conf")
"""Paths relative to the parent folder of a store."""
_ROOT = "storePathRootDir"


def broker_conf_path(given: str | None, store: str | None) -> str | None:
    """The path of the broker's settings file; None if there is none. If it was not given, a line on stderr names it.

    A file beside the store is used only if it can be of this store: it names no `storePathRootDir`, or one whose last
    part is the name of the store's folder.

    Args:
        given: The value of `--broker-conf`; an empty text means no file.
        store: The store, a path or a URI; None if no file can be beside it.
    """
    if given is not None:
        return given or None
    named = os.environ.get(VARIABLE)
    if named is not None:
        if named and "://" not in named and not os.path.isfile(named):
            raise OptionError(f"{VARIABLE}={named}: there is no such file")
        return _used(named, VARIABLE) if named else None
    if store is None or "://" in store:
        return None
    folder = Path(os.path.abspath(store))
    for beside in _BESIDE:
        file = folder.parent / beside
        if file.is_file() and _may_belong(file, folder.name):
            return _used(str(file), "beside the store")
    return None


def _used(path: str, why: str) -> str:
    line = f"the broker's settings are {path} ({why}); {VARIABLE}='' uses none"
    print(f"spark-mq: {visible(line)}", file=sys.stderr)
    return path


def _may_belong(file: Path, store_name: str) -> bool:
    from spark_mq.store.config.broker_conf import BrokerConf

    root = BrokerConf.of(str(file)).settings.get(_ROOT)
    return root is None or PurePosixPath(root).name == store_name
