"""One store directory, and what can be read from it and written to it. No Spark here."""
