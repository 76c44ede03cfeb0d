"""conf/delta-defaults.conf has the settings of the commands' own sessions, and those of conf/spark-defaults.conf."""

from __future__ import annotations

from spark_mq.archive.delta import delta_settings
from tests.support.stores import PROJECT


def settings_in(name: str) -> dict[str, str]:
    lines = (line.strip() for line in (PROJECT / "conf" / name).read_text().splitlines())
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def test_the_file_has_the_settings_of_the_commands_and_of_other_jobs() -> None:
    commands = delta_settings()
    package = commands.pop("spark.jars.packages").rpartition(":")
    found = settings_in("delta-defaults.conf")
    assert commands.items() <= found.items()
    assert settings_in("spark-defaults.conf").items() <= found.items()
    assert found["spark.jars.packages"].endswith(f":{package[2]}")
    assert found["spark.sql.cli.print.header"] == "true"
