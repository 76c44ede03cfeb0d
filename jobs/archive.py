"""`spark-submit jobs/archive.py STORE TABLE ...`: the same as `spark-mq archive STORE TABLE ...`."""

import sys

from spark_mq.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["archive", *sys.argv[1:]]))
