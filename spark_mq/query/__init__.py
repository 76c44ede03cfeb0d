"""SQL over stores and running clusters: the tables that a query reads, with its filters and columns pushed into them.

Read in this order: `sql` (the entry, with Spark), `plan` (a query as a template and references to stores' tables, with
the rows and columns that each needs), `lexer` and `statement` (the text and sqlglot's tree of it), `table_names` (which
tables are a store's), `scope` (relations, joins, and which relation a column belongs to), `comparisons` (what a
condition says about a column), `local_constants` (the values of constants, if Spark is not needed for them),
`conditions` (comparisons with values), `catalog` (columns of tables, a plan as reads of stores, SHOW TABLES and
DESCRIBE).

Beside them: `statement_check` (what is certainly wrong with a statement, before Spark starts).

May import sqlglot, `spark_mq.live.options`, `spark_mq.source`, `spark_mq.format` (not its kernels) and
`spark_mq.errors`. Only `sql` needs a session. `catalog` imports Spark's types.
"""
