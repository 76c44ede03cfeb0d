"""Whole files out of the commit log: dispatch, place, write, publish.

`rebuild` is the job; `dispatch` reads each split once and stages what it makes, `manifest` says what is staged;
`seams` judges whether the splits fitted together; `queue_writer` and `index_writer` assemble files, from nothing or
from what is there; `committer` is where all of it lies until it is published.
"""
