"""`spark-submit jobs/restore.py SOURCE STORE ...`: the same as `spark-mq restore SOURCE STORE ...`."""

import sys

from spark_mq.cli.entry import run

if __name__ == "__main__":
    sys.exit(run(["restore", "--engine", "spark", *sys.argv[1:]]))
