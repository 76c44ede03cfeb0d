"""The version of this package, which reports, journals and pages name."""

__version__ = "0.1.0"
