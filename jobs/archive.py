"""`spark-submit SETTINGS jobs/archive.py STORE TABLE ...`: the same as `spark-mq archive STORE TABLE ...`.

SETTINGS give the session Delta Lake: `--properties-file conf/delta-defaults.conf --load-spark-defaults`.
"""

import sys

from spark_mq.cli.entry import run

if __name__ == "__main__":
    sys.exit(run(["archive", *sys.argv[1:]]))
