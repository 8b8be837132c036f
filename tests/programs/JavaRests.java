import java.util.concurrent.locks.LockSupport;

/** Threads that stand in methods of several kinds until the program is killed; those of compiled code are called often before. */
public class JavaRests {
    static final Object LOCK = new Object();
    static volatile double sink;

    static void sleeps() throws InterruptedException {
        Thread.sleep(1000000); // sleeps
    }

    static void waits() throws InterruptedException {
        synchronized (LOCK) {
            LOCK.wait(); // waits
        }
    }

    static void parks() {
        while (true)
            LockSupport.park(); // parks
    }

    static void inside(int depth, int last) throws InterruptedException {
        if (depth > 0)
            inside(depth - 1, last); // descends
        else if (last > 0)
            sleeps(); // rests
    }

    static void compiled() throws InterruptedException {
        for (int i = 0; i < 200000; i++)
            inside(5, 0);
        inside(5, 1); // deep
    }

    static void runs() {
        for (long i = 1; ; i++)
            sink = Math.sqrt(i); // runs
    }

    interface Body {
        void go() throws InterruptedException;
    }

    static void begin(String name, Body body) {
        Thread thread = new Thread(() -> {
            try {
                body.go(); // goes
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }, name);
        thread.start();
    }

    public static void main(String[] arguments) throws InterruptedException {
        begin("sleeper", JavaRests::sleeps);
        begin("waiter", JavaRests::waits);
        begin("parker", JavaRests::parks);
        begin("runner", JavaRests::runs);
        begin("a very long name of a thread", JavaRests::compiled);
        System.out.println("ready");
        Thread.currentThread().join(); // main
    }
}
