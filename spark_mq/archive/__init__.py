"""An archive: Delta tables that keep a store's messages for longer than a broker does, for SQL."""
