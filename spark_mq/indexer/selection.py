"""Which derived files a rebuild writes: both trees, one of them, one topic's queues, or one queue."""

from __future__ import annotations

from dataclasses import dataclass

from spark_mq.errors import OptionError, UnsafeNameError
from spark_mq.store.config.store_paths import CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX
from spark_mq.store.config.topic_name import check_topic_name


@dataclass(frozen=True)
class Selection:
    """The files to rebuild.

    Attributes:
        topic: The topic whose queues are rebuilt; None for all topics.
        queue_id: The queue that is rebuilt; None for all queues of the topic.
        has_ext: Whether the extensions of the rebuilt queues are made, too.
    """

    has_queues: bool = True
    has_index: bool = True
    topic: str | None = None
    queue_id: int | None = None
    has_ext: bool = False

    @classmethod
    def of(cls, only: str | None, topic: str | None, queue_id: int | None) -> Selection:
        """The selection of these arguments of a rebuild."""
        if only not in (None, CONSUME_QUEUE, INDEX):
            raise OptionError(f"--only {only!r} is none of {CONSUME_QUEUE}, {INDEX}")
        if topic is None:
            if queue_id is not None:
                raise OptionError(f"--queue-id {queue_id} needs --topic: a queue belongs to a topic")
            return cls(has_queues=only != INDEX, has_index=only != CONSUME_QUEUE)
        if only == INDEX:
            raise OptionError("--topic and --only index: an index file has keys of all topics; leave out one of them")
        if queue_id is not None and not 0 <= queue_id < 1 << 31:
            raise OptionError(f"--queue-id {queue_id}: a queue id is 0 or more, and has 31 bits")
        try:
            check_topic_name(topic)
        except UnsafeNameError as error:
            raise OptionError(f"--topic: {error}") from error
        return cls(has_index=False, topic=topic, queue_id=queue_id)

    @property
    def queue_tree(self) -> str | None:
        """The path of the selected queues in a store; None if no queue is rebuilt."""
        return self._path(CONSUME_QUEUE) if self.has_queues else None

    @property
    def trees(self) -> tuple[str, ...]:
        """The paths in a store of everything that is rebuilt."""
        ext = (self._path(CONSUME_QUEUE_EXT),) if self.has_queues and self.has_ext else ()
        return (*((self.queue_tree,) if self.queue_tree else ()), *ext, *((INDEX,) if self.has_index else ()))

    def _path(self, tree: str) -> str:
        parts = (tree, self.topic, None if self.queue_id is None else str(self.queue_id))
        return "/".join(part for part in parts if part is not None)

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether this queue is rebuilt."""
        return self.has_queues and self.topic in (None, topic) and self.queue_id in (None, queue_id)
