package sparkmq.broker;

import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Stops servers, clients and message stores cleanly, without the ten seconds in which their threads only wait.
 *
 * <p>A stop joins one event thread after another. Each of them notices the stop when it has had no event for three
 * seconds, or when it is interrupted. A message store sleeps for three seconds before it stops anything.
 */
final class Stop extends Thread {
    private static final String EVENT_THREAD = "NettyEventExecutor";
    private static final long MILLISECONDS_BETWEEN = 50;

    private final Thread stopping = Thread.currentThread();
    private volatile boolean isDone;

    private Stop() {
        setDaemon(true);
    }

    static void now(Runnable shutdown) {
        Stop waker = new Stop();
        waker.start();
        try {
            shutdown.run();
        } finally {
            waker.isDone = true;
        }
    }

    @Override
    public void run() {
        while (!isDone) {
            getAllStackTraces().forEach((thread, stack) -> {
                if (thread.getName().contains(EVENT_THREAD) && thread.getState() == State.TIMED_WAITING
                    || thread == stopping && sleepsBeforeStop(stack)) {
                    thread.interrupt();
                }
            });
            try {
                sleep(MILLISECONDS_BETWEEN);
            } catch (InterruptedException never) {
                return;
            }
        }
    }

    private static boolean sleepsBeforeStop(StackTraceElement[] stack) {
        return stack.length > 1 && stack[0].getMethodName().equals("sleep")
            && stack[1].getClassName().equals(DefaultMessageStore.class.getName())
            && stack[1].getMethodName().equals("shutdown");
    }
}
