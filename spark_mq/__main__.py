"""`python -m spark_mq`: the same as the command `spark-mq`."""

import sys

from spark_mq.cli.entry import run

if __name__ == "__main__":
    sys.exit(run())
