"""What the commands print: rows and messages, for a person or for a program.

`value_text` is of one value, `row_printer` chooses columns, and `text_table`, `tree` and `json_lines` are three forms
of rows. `message_printer` and `bodies` print messages, `dataframe_output` the results of SQL, and `terminal` knows the
terminal. `visible` is what every command needs.
"""

from __future__ import annotations

from spark_mq.cli.output.value_text import visible

__all__ = ["visible"]
