"""`spark-submit jobs/rebuild.py STORE ...`: the same as `spark-mq rebuild STORE ...`."""

import sys

from spark_mq.cli.entry import run

if __name__ == "__main__":
    sys.exit(run(["rebuild", "--engine", "spark", *sys.argv[1:]]))
