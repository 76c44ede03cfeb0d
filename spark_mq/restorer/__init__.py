"""Restore: messages become a store that a broker boots from, or are appended to a stopped store.

The way of an append: `append_target` says where a store ends, and whether it can be appended to. The caller puts
segments with the new records into a folder of the store, and `append` makes queue files and index files for them.
`append_commit` puts everything in place, all or nothing.
"""
