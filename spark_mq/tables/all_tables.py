"""All tables, by name, and by the command that prints them."""

from __future__ import annotations

from collections.abc import Mapping

from spark_mq.tables import config, lifecycle, messages, store_files, tiered
from spark_mq.tables.table import Table

TABLES: Mapping[str, Table] = {
    table.name: table
    for module in (messages, store_files, tiered, config, lifecycle)
    for table in vars(module).values()
    if isinstance(table, Table)
}

COMMANDS: Mapping[str, Table] = {table.command: table for table in TABLES.values() if table.command}
"""The tables that a command prints, by its name."""
ARCHIVED_TABLES = tuple(table.name for table in TABLES.values() if table.archived_rows)
"""The names of the tables of what messages mean, which an archive has, too."""
