import java.lang.management.ManagementFactory;

/** Calls work() in turns from methods of several kinds, until its thread has run for as many seconds as it is told. */
public class JavaPairs {
    static volatile double sink;

    static double work(int n) {
        double sum = 0;
        for (int i = 1; i < n; i++)
            sum += Math.sqrt(i) / (i + 1.0);
        return sum;
    }

    static void first(int n) {
        sink = work(n); // first's call
    }

    static void second(int n) {
        sink = work(n); // second's call
    }

    interface Step {
        void take(int n);
    }

    static class Left implements Step {
        public void take(int n) {
            sink = work(n);
        }
    }

    static class Right implements Step {
        public synchronized void take(int n) {
            sink = work(n);
        }
    }

    static class Outer implements Step {
        public void take(int n) {
            descend(n, 5);
        }
    }

    static void descend(int n, int depth) {
        if (depth > 0)
            descend(n, depth - 1);
        else
            sink = work(n);
    }

    static void thrown(int n) {
        try {
            raise(n);
        } catch (IllegalStateException error) {
            sink = work(n);
        }
    }

    static void raise(int n) {
        sink = work(n);
        throw new IllegalStateException();
    }

    static final Step[] STEPS = {new Left(), new Right(), new Outer()};

    static void turn(int n) {
        first(n);
        second(n);
        for (Step step : STEPS)
            step.take(n);
        thrown(n);
    }

    public static void main(String[] arguments) {
        double seconds = Double.parseDouble(arguments[0]);
        var threads = ManagementFactory.getThreadMXBean();
        while (threads.getCurrentThreadCpuTime() < seconds * 1e9)
            turn(20000);
    }
}
