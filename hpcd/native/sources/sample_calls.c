/* Samples of an OTF2 archive, written by calls of its library. */
#include "loops.h"

/* OTF2_AttributeList_AddUint64 and OTF2_EvtWriter_CallingContextSample. */
typedef int add_uint64(void *attributes, uint32_t attribute, uint64_t value);
typedef int calling_context_sample(void *writer, void *attributes, uint64_t time, uint32_t context,
				   uint32_t unwind_distance, uint32_t interrupt_generator);

/* Writes n samples of time, context, event, metric and weight. Returns the first error's code, or 0. */
EXPORTED int write_samples(add_uint64 *add, calling_context_sample *sample, void *writer, void *attributes,
			   const int64_t (*samples)[5], int64_t n, uint32_t undefined)
{
	for (int64_t at = 0; at < n; at++) {
		const int64_t *one = samples[at];
		int code = add(attributes, (uint32_t)one[3], (uint64_t)one[4]);
		if (code == 0)
			code = sample(writer, attributes, (uint64_t)one[0], (uint32_t)one[1], undefined,
				      (uint32_t)one[2]);
		if (code != 0)
			return code;
	}
	return 0;
}
