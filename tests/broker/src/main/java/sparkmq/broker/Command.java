package sparkmq.broker;

/** One sub-command of {@link Main}. */
interface Command {
    /**
     * Runs the command.
     *
     * @return the exit code of the process
     */
    int run(Arguments arguments) throws Exception;
}
