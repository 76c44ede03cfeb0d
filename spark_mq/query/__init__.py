"""SQL over stores: which tables of a store a query names, and how little of each it has to read."""
