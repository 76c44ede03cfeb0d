"""`spark-submit jobs/repair.py STORE ...`: the same as `spark-mq repair STORE ...`."""

import sys

from spark_mq.cli.entry import run

if __name__ == "__main__":
    sys.exit(run(["repair", "--engine", "spark", *sys.argv[1:]]))
