"""What the commands print: rows and messages, for a person or for a program.

`value_text` is of one value; `text_table` chooses columns, and it and `json_lines` are two forms of rows.
`message_printer` and `bodies` print messages, `dataframe_output` the results of SQL, and `terminal` reports and trees.
`metrics` writes figures for Prometheus.
`visible` and `say` are what every command needs.
"""

from __future__ import annotations

from spark_mq.cli.output.terminal import say
from spark_mq.cli.output.value_text import visible

__all__ = ["say", "visible"]
