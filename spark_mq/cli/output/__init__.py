"""What the commands print: rows and messages, for a person or for a program.

`value_text` is of one value, and of rows as lines of JSON; `text_table` chooses columns of a table.
`message_printer` prints messages, `dataframe_output` the results of SQL, and `terminal` reports and trees.
`metrics` writes figures for Prometheus.
`visible` and `say` are what every command needs.
"""

from __future__ import annotations

from spark_mq.cli.output.terminal import say
from spark_mq.cli.output.value_text import visible

__all__ = ["say", "visible"]
