"""`spark-mq recover`: `command` has the arguments, `text` the answer for a person, `fields` for a program."""
