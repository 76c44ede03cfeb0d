"""`spark-mq state`: `command` has the arguments, `verdict` the answer, `text` and `fields` the details."""
