"""Whole files out of the commit log: dispatch, place, write, publish.

`rebuild` is the job; `dispatch` reads each split once and stages what it makes; `seams` judges whether the splits
fitted together; `queue_writer` assembles queue files; `workplace` is where all of it lies until it is published.
"""
