"""Table `traces`. `trace_record` parses the body of one message, `traces` those of many."""
