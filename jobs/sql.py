"""`spark-submit jobs/sql.py QUERY --store NAME=PATH ...`: the same as `spark-mq sql QUERY ...`."""

import sys

from spark_mq.cli.entry import run

if __name__ == "__main__":
    sys.exit(run(["sql", *sys.argv[1:]]))
