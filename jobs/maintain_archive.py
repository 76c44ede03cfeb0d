"""`spark-submit jobs/maintain_archive.py TABLE ...`: the same as `spark-mq maintain-archive TABLE ...`.

Without `--apply` it changes nothing, and prints what would be deleted and removed.
"""

import sys

from spark_mq.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["maintain-archive", *sys.argv[1:]]))
