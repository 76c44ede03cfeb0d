"""`spark-submit jobs/sql.py QUERY --store NAME=PATH ...`: the same as `spark-mq sql QUERY ...`."""

import sys

from spark_mq.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["sql", *sys.argv[1:]]))
