package sparkmq.broker;

import java.lang.invoke.MethodType;
import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.List;

/** Constructors and methods that not every release has, or has with other parameters. */
final class Overload {
    private Overload() {
    }

    /** A new object, by the first of the lists of arguments that a constructor takes. */
    @SafeVarargs
    static <T> T create(Class<T> type, List<Object>... argumentLists) throws ReflectiveOperationException {
        for (List<Object> arguments : argumentLists) {
            for (Constructor<?> constructor : type.getConstructors()) {
                if (takes(constructor, arguments)) {
                    return type.cast(constructor.newInstance(arguments.toArray()));
                }
            }
        }
        throw new NoSuchMethodException(type.getName());
    }

    /** Whether a class has a public method of that name with so many parameters. */
    static boolean exists(Class<?> type, String name, int parameters) {
        return Arrays.stream(type.getMethods())
            .anyMatch(method -> method.getName().equals(name) && method.getParameterCount() == parameters);
    }

    /** What a public method returns. */
    static Object call(Object target, String name, Object... arguments) throws ReflectiveOperationException {
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equals(name) && takes(method, Arrays.asList(arguments))) {
                return method.invoke(target, arguments);
            }
        }
        throw new NoSuchMethodException(target.getClass().getName() + "." + name);
    }

    private static boolean takes(Executable executable, List<Object> arguments) {
        Class<?>[] types = MethodType.methodType(void.class, executable.getParameterTypes()).wrap().parameterArray();
        if (types.length != arguments.size()) {
            return false;
        }
        for (int i = 0; i < types.length; i++) {
            if (arguments.get(i) != null && !types[i].isInstance(arguments.get(i))) {
                return false;
            }
        }
        return true;
    }
}
