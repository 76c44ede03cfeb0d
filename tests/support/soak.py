"""Long forms of tests: `make soak` tries all cases of a test of which a usual run tries a few."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")

SOAKS = os.environ.get("SPARK_MQ_SOAK") == "1"
"""Whether this run tries the long forms."""


def cases(usual: Sequence[Case], all_cases: Sequence[Case]) -> Sequence[Case]:
    """The cases to try: `usual`, or in a soak `all_cases`."""
    assert set(usual) <= set(all_cases), "a usual case is missing in the long form"
    return all_cases if SOAKS else usual
