"""Tables that count: `duplicates`, `hot_keys`, `rates`, `skew`. Each batch is counted, and the counts are merged."""
