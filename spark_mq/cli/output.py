"""What the commands print with: values, tables and JSON lines; each is in a module of its own."""

from __future__ import annotations

from spark_mq.cli.json_lines import csv_text, plain_rows, print_json
from spark_mq.cli.text_table import print_lines
from spark_mq.cli.value_text import local_time, value_text, visible

__all__ = ["csv_text", "local_time", "plain_rows", "print_json", "print_lines", "value_text", "visible"]
