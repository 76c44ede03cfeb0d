"""What consumer groups do: tables `consumer_progress`, `retries` and `dead_letters`.

`retry_topic` has the rules for the names of topics, `retry_copies` says which records are copies of one message,
and `popped_messages` what became of messages that groups popped.
"""
