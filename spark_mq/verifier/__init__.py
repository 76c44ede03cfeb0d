"""Whether a store is sound: everything in it held against its commit log.

`codes` has all kinds of findings, and `finding` what one of them is. Soundness of one range is a pure function, from
bytes to findings: `records`, `queue_file` and `index_file` (with `entry_match`), for which `log_bounds` and
`expected_entries` say what the log has. Names, sizes and small files are the matter of `segments`, `queue_folders`,
`index_folder`, `checkpoint`, `config_files` and `log_end`.

`check` runs all of that over a store: as tasks (`split_task`, `queue_task`, `index_task`, `check_task`), which put
their findings into a `sink`, in this process or on Spark (`spread`). `verify` is the Spark job, `quick` the check
without a reading of the whole log; `result` and `report_file` are what they give. `unseen` lists what no check can see,
and `code_page` writes both tables into the documentation.
"""
