import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** Programs in Java with a planted cause, and a healthy one; as cases.h. */
public class Causes {
	static final AtomicLong planted = new AtomicLong();
	static final Object table = new Object();
	static volatile double sink;
	static byte[][] kept = new byte[40][];

	/** Works for the time that as many steps take: Java has no cheap clock of CPU time. */
	static double steps(int count) {
		double sum = 1;
		for (int i = 0; i < count; i++)
			sum = sum * 0.999999 + i;
		return sum;
	}

	static void updatesTheTable() {
		long began = System.nanoTime();
		synchronized (table) {
			planted.addAndGet(System.nanoTime() - began);
			sink = steps(200_000);
		}
		sink = steps(20_000);
	}

	static void inThreads(int count, Runnable body) throws InterruptedException {
		Thread[] threads = new Thread[count];
		for (int i = 0; i < count; i++)
			(threads[i] = new Thread(body, "works-" + i)).start();
		for (Thread thread : threads)
			thread.join();
	}

	static void javaMonitor() throws InterruptedException {
		inThreads(3, () -> {
			for (int i = 0; i < 1500; i++)
				updatesTheTable();
		});
	}

	/** Most of the heap stays, and each collection goes through it. */
	static void keepsLists() {
		for (int i = 0; i < 400_000; i++)
			lists[i % lists.length] = new Object[] {lists[(i * 7) % lists.length] == null ? null : i, new int[6]};
	}

	static Object[] lists = new Object[900_000];

	static void javaGarbage() {
		for (int i = 0; i < 40; i++)
			keepsLists();
		for (GarbageCollectorMXBean bean : ManagementFactory.getGarbageCollectorMXBeans())
			planted.addAndGet(bean.getCollectionTime() * 1_000_000);
	}

	static void answers() {
		sink = steps(3_000_000);
	}

	static void healthyJavaPool() throws InterruptedException {
		ExecutorService pool = Executors.newFixedThreadPool(4);
		for (int i = 0; i < 80; i++) {
			pool.submit(Causes::answers);
			Thread.sleep(20);
		}
		pool.shutdown();
		pool.awaitTermination(60, TimeUnit.SECONDS);
	}

	public static void main(String[] arguments) throws InterruptedException {
		switch (arguments[0]) {
		case "java_monitor" -> javaMonitor();
		case "java_garbage" -> javaGarbage();
		case "healthy_java_pool" -> healthyJavaPool();
		}
		System.out.printf("%.6f%n", planted.get() / 1e9);
	}
}
