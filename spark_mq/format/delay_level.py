"""The delay levels of a broker whose settings name none."""

from __future__ import annotations

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""`MessageStoreConfig.messageDelayLevel`@5.3.3."""
