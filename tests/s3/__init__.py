"""A real S3 server for tests, and what is read from it."""
