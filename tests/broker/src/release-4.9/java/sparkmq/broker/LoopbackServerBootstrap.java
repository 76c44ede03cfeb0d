package sparkmq.broker;

import io.netty.bootstrap.ServerBootstrap;
import java.net.InetSocketAddress;
import java.net.SocketAddress;

/** Listens on loopback where it is told to listen on every interface; 4.9 has no setting for that. */
final class LoopbackServerBootstrap extends ServerBootstrap {
    @Override
    public ServerBootstrap localAddress(SocketAddress everywhere) {
        return super.localAddress(Loopback.address(((InetSocketAddress) everywhere).getPort()));
    }
}
