"""The tables of a store, declared once: names, rows, columns, options, examples. Nothing here reads a store.

`table` has the parts of a declaration. The declarations are in `messages`, `store_files`, `tiered`, `config` and
`lifecycle`;
`all_tables` has them by name. `live` declares what a live cluster has besides. Everything that names a table or a
column is made from them: schemas, the check of options, the manual of the data source, `DESCRIBE`, the commands, the
views of archives, `conf/tables.sql` and `docs/tables.md` (`manual`).

A new table is a declaration in one of the modules here, and a function that returns its rows.
"""
