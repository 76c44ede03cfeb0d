"""`spark-submit jobs/rebuild.py STORE ...`: the same as `spark-mq rebuild STORE ...`."""

import sys

from spark_mq.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["rebuild", *sys.argv[1:]]))
