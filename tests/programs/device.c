/* Works with a device, and lets it idle. Prints for how many seconds the device was idle after it had been
   waited for, and for how many in all. */
#include <stdio.h>

#include "cudart.h"

enum { ROUNDS = 12, TO_DEVICE = 1, TO_HOST = 2 };

static volatile double sum;
static double waited, known;
static char here[64], there[64];

static void compute(double seconds)
{
	double end = device_now() + seconds;

	while (device_now() < end)
		for (int i = 0; i < 1000; i++)
			sum += i * 0.5;
}

static void launch(long milliseconds)
{
	dim3 one = {1, 1, 1};

	if (waited)
		known += device_now() - waited;
	waited = 0;
	cudaLaunchKernel((void *)(milliseconds * 1000000), one, one, NULL, 0, NULL);
}

__attribute__((noinline)) static void beside(void) { compute(0.006); sum++; }
__attribute__((noinline)) static void unnoticed(void) { compute(0.010); sum++; }
__attribute__((noinline)) static void after(void) { compute(0.015); sum++; }

int main(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		launch(10);
		beside();
		cudaDeviceSynchronize();
		waited = device_now();
		after();
		launch(2);
		unnoticed(); /* the kernel ends meanwhile */
		cudaMemcpy(here, there, sizeof here, TO_HOST);
		waited = device_now();
		after();
	}
	launch(1);
	printf("{\"known\": %.9f, \"idle\": %.9f}\n", known, device_idle());
	cudaDeviceSynchronize();
	cudaFree(NULL);
	return 0;
}
