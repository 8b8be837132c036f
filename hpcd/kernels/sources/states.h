/* States of threads in traces; setup/wire.py makes State of hpcd/model/codes.py of it. */
#ifndef HPCD_STATES_H
#define HPCD_STATES_H

/* State of a thread from an entry of its trace line on. Pixels have the first three: a thread that resumed runs. */
enum state {
	SAMPLED = 0, /* it runs, seen by a sample */
	BLOCKED = 1, /* it waits until the next entry */
	READY = 2,   /* it waits for a CPU until the next entry */
	RESUMED = 3, /* it runs again after a wait, and no sample has seen it yet */
};

#endif
