/* The CUDA runtime's functions, or with -DHIP HIP's of the same kind, that stand-ins have. */
#include <stddef.h>

#ifdef HIP
#define cudaLaunchKernel hipLaunchKernel
#define cudaDeviceSynchronize hipDeviceSynchronize
#define cudaMemcpy hipMemcpy
#define cudaFree hipFree
#endif

typedef struct { unsigned x, y, z; } dim3;

int cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream);
int cudaDeviceSynchronize(void);
int cudaMemcpy(void *to, const void *from, size_t size, int direction);
int cudaFree(void *block);

double device_now(void);
/* Seconds in which the device had nothing to do since the first kernel; unlike the host it knows. */
double device_idle(void);
