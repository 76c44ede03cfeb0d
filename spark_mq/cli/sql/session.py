"""What is known, before Spark starts, of the session that `spark-mq sql` will have."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_SETTINGS_OF_CATALOGS = ("catalog", "extensions", "warehouse", "hive", "metastore")
_FILES = ("spark-defaults.conf", "hive-site.xml")


def is_on_server() -> bool:
    """Whether the session is on a Spark Connect server, which sees the stores under paths of its own."""
    return not os.environ.get("SPARK_REMOTE", "local").startswith("local")


def has_empty_catalog(settings: Mapping[str, str]) -> bool:
    """Whether the session certainly has no tables and no databases when it starts.

    A session that starts in this process has a catalog in memory, unless settings give it another one.
    """
    launched = ("SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
    if is_on_server() or any(name in os.environ for name in launched):
        return False
    if any(word in name.lower() for name in settings for word in _SETTINGS_OF_CATALOGS):
        return False
    return not any((folder / file).exists() for folder in _conf_folders() for file in _FILES)


def _conf_folders() -> list[Path]:
    folders = [Path(os.environ[name]) for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR") if name in os.environ]
    try:
        from pyspark.find_spark_home import _find_spark_home

        home = _find_spark_home()
    except (ImportError, SystemExit):  # it ends the process if it finds nothing
        return folders
    return [*folders, Path(home) / "conf"]
