import java.lang.management.ManagementFactory;

/** Computes by methods that HotSpot has stubs for, until its thread has run for as many seconds as it is told. */
public class JavaSines {
    static volatile double sink;

    static double sines(int n) {
        double sum = 0;
        for (int i = 1; i < n; i++)
            sum += Math.sin(i) * Math.cos(i) + Math.log(i) - Math.pow(i, 0.3) + Math.exp(1.0 / i) - Math.tan(i);
        return sum;
    }

    public static void main(String[] arguments) {
        var threads = ManagementFactory.getThreadMXBean();
        long end = (long) (1e9 * Double.parseDouble(arguments[0]));
        while (threads.getCurrentThreadCpuTime() < end)
            sink = sines(2000);
    }
}
