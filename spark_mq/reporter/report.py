"""`report`: a page about stores that people keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from spark_mq.errors import OptionError, StorageError
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.tasks import LocalTasks, Tasks
from spark_mq.reporter.figures import Figures, store_figures
from spark_mq.store.retention import moment_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq.reporter.plot import Plot


@dataclass(frozen=True)
class Report:
    """What is known of some stores; `html` is the page.

    Attributes:
        stores: The figures of each store.
        html: The page, which needs no other file and no network.
    """

    stores: tuple[Figures, ...]
    html: str

    def plots(self, section: str, store: int = 0) -> list[Plot]:
        """The plots of a section, as the page shows them; a notebook shows one that is a cell's last value.

        Args:
            section: The name of the section, such as `lag`, `delayed` or `damage`.
            store: Which one of `stores`.

        Returns:
            The plots in the order of the page; a section without rows can have none.

        Raises:
            OptionError: There is no such section.

        Examples:
            >>> report("/data/store").plots("lag")[0].title
            'GID_slow lags by 13 h'
        """
        from spark_mq.reporter.sections import sections

        named = {one.name: one for one in sections(self.stores[store], 0)}
        if section not in named:
            raise OptionError(f"there is no section {section!r}: {', '.join(named)}")
        return [draw() for draw in named[section].draws]


def report(
    stores: str | Sequence[str],
    html: str | None = None,
    *,
    archive: str | None = None,
    at: int | datetime | None = None,
    broker_conf: str | None = None,
    broker_version: str | None = None,
    history: str | None = None,
) -> Report:
    """A page about stores: how they are, how far back they go, who lags, what expires, what waits, and all statistics.

    Nothing in a store is changed, and neither Spark nor Java is needed; the packages of `pip install
    'spark-mq[report]'` are.

    Args:
        stores: One store directory, a path or a URI, or several.
        html: The file that gets the page, a path or a URI; None writes none.
        archive: An archive: the page says what of the stores is not there yet.
        at: The time to which ages refer, epoch milliseconds or a datetime with a time zone; by default now.
        broker_conf: The file of the brokers' settings.
        broker_version: The version of the broker that starts next, such as `5.3.3`; by default, all that the files of
            a store allow.
        history: A folder with the figures of earlier reports, which gets those of this one; the page shows them.

    Returns:
        The report: `stores` has the numbers, `html` the page.

    Raises:
        OptionError: An argument is not valid.
        StoreNotFoundError: A path is not a message store.
        UnsupportedStoreError: A store is of a kind that is not read.
        ConfigError: The file of the history cannot be read.
        StorageError: A file cannot be read or written.

    Examples:
        >>> report("/data/store", "store.html").stores[0].summary["dead_letters"]
        5
    """
    named = [(store, broker_conf) for store in ([stores] if isinstance(stores, str) else stores)]
    return report_with(LocalTasks(), named, html, archive, moment_of(at), history, broker_version)


def report_with(
    tasks: Tasks,
    stores: Sequence[tuple[str, str | None]],
    html: str | None,
    archive: str | None,
    at: int,
    history: str | None,
    broker_version: str | None,
) -> Report:
    """The report of stores, each with the file of its broker's settings; see `report`."""
    found = tuple(store_figures(path, tasks, at, conf, archive, broker_version) for path, conf in stores)
    return report_of(found, html, history)


def report_archive(
    spark: SparkSession,
    archive: str,
    html: str | None = None,
    *,
    cluster: str | None = None,
    broker: str | None = None,
    store_name: str | None = None,
    broker_conf: str | None = None,
    history: str | None = None,
) -> Report:
    """A page about one store of an archive: what its messages say, and which part of its log is archived.

    Ages refer to the newest time of which the archive knows the store. The store's files are not needed.

    Args:
        spark: A session that can read Delta tables.
        archive: The archive's table of messages, a path, a URI, or a name in the catalog.
        html: The file that gets the page, a path or a URI; None writes none.
        cluster, broker, store_name: The names of the store in the archive; None for any.
        broker_conf: The file of the broker's settings.
        history: A folder with the figures of earlier reports, which gets those of this one; the page shows them.

    Returns:
        The report.

    Raises:
        OptionError: The archive has not exactly one store with these names.
        ConfigError: The file of the history cannot be read.
        StorageError: A file cannot be written.

    Examples:
        >>> report_archive(spark, "/lake/messages", "archive.html", broker="broker-a").stores[0].summary["messages"]
        1364
    """
    from spark_mq.archive.archived_store import ArchivedStore
    from spark_mq.reporter.figures import archive_figures

    archived = ArchivedStore.open(
        spark, archive, cluster=cluster, broker=broker, store_name=store_name, broker_conf=broker_conf
    )
    return report_of([archive_figures(archived)], html, history)


def report_of(found: Sequence[Figures], html: str | None, history: str | None) -> Report:
    """The report of these figures, with its page; the history gets the figures."""
    from spark_mq.reporter.page import add_to_history, html_page

    runs = [] if history is None else add_to_history(history, [figures.summary for figures in found])
    page = html_page(found, runs)
    if html is not None:
        try:
            publish(Location.resolve(html), page.encode())
        except OSError as error:
            raise StorageError(f"--html {html}: cannot be written: {error.strerror or error}") from error
    return Report(tuple(found), page)
