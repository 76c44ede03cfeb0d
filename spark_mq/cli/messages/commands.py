"""`spark-mq query-by-...` and `print-message`: messages of a store, without Spark or a JVM."""

from __future__ import annotations

import argparse

from spark_mq.cli.messages import print_message, query_by_id, query_by_key, query_by_offset, query_by_unique_key


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands and their arguments."""
    query_by_id.add_command(commands)
    query_by_key.add_command(commands)
    query_by_unique_key.add_command(commands)
    query_by_offset.add_command(commands)
    print_message.add_command(commands)
