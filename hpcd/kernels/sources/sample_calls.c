/* Samples of an OTF2 archive, written by calls of its library. */
#include "common.h"

/* OTF2_AttributeList_AddUint64 and OTF2_EvtWriter_CallingContextSample. */
typedef int add_uint64(void *attributes, uint32_t attribute, uint64_t value);
typedef int calling_context_sample(void *writer, void *attributes, uint64_t time, uint32_t context,
				   uint32_t unwind_distance, uint32_t interrupt_generator);

/* Writes n samples of time, context, event, metric and weight by the two functions, whose addresses are given.
 * Returns the first error's code, or 0. */
int write_samples(uintptr_t add, uintptr_t sample, uintptr_t writer, uintptr_t attributes, const int64_t *samples,
		  int64_t n, uint32_t undefined)
{
	add_uint64 *add_value = (add_uint64 *)add;
	calling_context_sample *write_sample = (calling_context_sample *)sample;
	for (int64_t at = 0; at < n; at++) {
		const int64_t *one = samples + 5 * at;
		int code = add_value((void *)attributes, (uint32_t)one[3], (uint64_t)one[4]);
		if (code == 0)
			code = write_sample((void *)writer, (void *)attributes, (uint64_t)one[0], (uint32_t)one[1],
					    undefined, (uint32_t)one[2]);
		if (code != 0)
			return code;
	}
	return 0;
}
