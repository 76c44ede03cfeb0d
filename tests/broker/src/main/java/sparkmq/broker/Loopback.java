package sparkmq.broker;

import java.io.IOException;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/** Loopback addresses, and a way to move listeners there that RocketMQ would open on every interface. */
final class Loopback {
    static final String HOST = "127.0.0.1";
    /** Below the ports that systems give to outgoing connections, one of which could take a free port at any time. */
    private static final int LOWEST_PORT = 12_000;
    private static final int HIGHEST_PORT = 32_000;
    private static final Set<Integer> GIVEN_PORTS = new HashSet<>();

    private Loopback() {
    }

    static InetSocketAddress address(int port) {
        return new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
    }

    static int freePort() {
        return freePort(0);
    }

    /** A free port with a free one two below it, where the broker opens its second listener. */
    static int freeBrokerPort() {
        return freePort(2);
    }

    private static synchronized int freePort(int distance) {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(LOWEST_PORT, HIGHEST_PORT);
            if (isFree(port) && isFree(port - distance) && GIVEN_PORTS.add(port)) {
                return port;
            }
        }
    }

    private static boolean isFree(int port) {
        try (ServerSocket socket = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
            return socket.isBound() && !GIVEN_PORTS.contains(port);
        } catch (IOException taken) {
            return false;
        }
    }

    /** Moves the listener for replicas, which has no setting for its address. */
    static void moveAcceptService(Object acceptSocketService) throws ReflectiveOperationException {
        Field field = field(acceptSocketService.getClass(), "socketAddressListen");
        InetSocketAddress everywhere = (InetSocketAddress) field.get(acceptSocketService);
        field.set(acceptSocketService, address(everywhere.getPort()));
    }

    /** The field of that name in the class or the nearest super class that has it. */
    static Field field(Class<?> type, String name) throws NoSuchFieldException {
        for (Class<?> at = type; at != null; at = at.getSuperclass()) {
            for (Field field : at.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field;
                }
            }
        }
        throw new NoSuchFieldException(type.getName() + "." + name);
    }
}
