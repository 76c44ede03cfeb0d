"""What the commands print: rows and messages, for a person or for a program.

`value_text` and `display_width` are of one value, `text_table`, `fields` and `json_lines` are three forms of rows, and
`columns` chooses columns. `message_printer` and `bodies` print messages, `dataframe_output` the results of SQL, and
`terminal` knows the terminal. The names below are those that the other commands use.
"""

from __future__ import annotations

from spark_mq.cli.output.json_lines import csv_text, plain_rows, print_json
from spark_mq.cli.output.text_table import print_lines
from spark_mq.cli.output.value_text import local_time, value_text, visible

__all__ = ["csv_text", "local_time", "plain_rows", "print_json", "print_lines", "value_text", "visible"]
