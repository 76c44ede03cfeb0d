"""`spark-submit jobs/verify.py STORE ...`: the same as `spark-mq verify STORE ...`."""

import sys

from spark_mq.cli.entry import run

if __name__ == "__main__":
    sys.exit(run(["verify", "--engine", "spark", *sys.argv[1:]]))
