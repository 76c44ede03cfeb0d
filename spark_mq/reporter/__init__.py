"""A page about a store, for people: what its files say and no dashboard can show.

`figures` reads the store, or one of an archive: they have its numbers, which are those of the tables and commands.
`status` says what is the matter; `sections` makes tables and plots, each with the query that gives it, also those of
`message_sections`, by what `section` has for both; `page` makes the HTML file, and keeps the figures of each run.
`plots` draws, also for notebooks, by what `plot` has for all plots. `report` is what a user calls.
"""
