"""`spark-submit SETTINGS jobs/maintain_archive.py TABLE ...`: the same as `spark-mq maintain-archive TABLE ...`.

SETTINGS give the session Delta Lake: `--properties-file conf/delta-defaults.conf --load-spark-defaults`. Without
`--apply` the job changes nothing, and prints what would be deleted and removed.
"""

import sys

from spark_mq.cli.entry import run

if __name__ == "__main__":
    sys.exit(run(["maintain-archive", *sys.argv[1:]]))
