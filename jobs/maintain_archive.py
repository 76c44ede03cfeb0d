"""`spark-submit jobs/maintain_archive.py TABLE ...`: the same as `spark-mq maintain-archive TABLE ...`.

Without `--apply` it changes nothing, and prints what would be deleted and removed.
"""

import sys

from spark_mq.cli.entry import run

if __name__ == "__main__":
    sys.exit(run(["maintain-archive", *sys.argv[1:]]))
