"""`spark-mq recover`: `command` has the arguments, `text` the answer and the rows for a person, `fields` for a program."""
