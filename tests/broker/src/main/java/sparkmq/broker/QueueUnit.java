package sparkmq.broker;

/** One unit of a consume queue: where its message is, how long it is, and its tag code. */
record QueueUnit(long offset, int size, long tagsCode) {
    /** Whether it only fills the place before a queue's first message. */
    boolean isBlank() {
        return offset == 0 && size == Integer.MAX_VALUE;
    }
}
