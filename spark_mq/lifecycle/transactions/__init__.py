"""Table `transactions`. Read `transaction_records` and `op_message` first, then `transactions`."""
