"""Table `delayed`: the messages that delay levels and timers deliver. `timer_log` has the records of the timer."""
