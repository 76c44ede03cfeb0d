package sparkmq.broker;

import org.apache.rocketmq.store.ha.DefaultHAService;

/** The replication service, listening on loopback only; the store finds it by its service file. */
public final class LoopbackHaService extends DefaultHAService {
    @Override
    public void start() throws Exception {
        Loopback.moveAcceptService(acceptSocketService);
        super.start();
    }
}
