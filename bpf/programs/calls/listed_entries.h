/* Records of the entries of an array that a function was called with. */
#ifndef HPCD_CALLS_LISTED_ENTRIES_H
#define HPCD_CALLS_LISTED_ENTRIES_H

#include "calls/open_calls.h"

struct listing {
	struct call call;
	struct counters *counted;
	u64 address;
	u32 entries, width;
};

static __attribute__((noinline)) long list_one(u32 number, struct listing *listing)
{
	u64 word = 0;
	u32 width = listing->width == 4 ? 4 : 8;

	if (number >= listing->entries || read_user(&word, width, listing->address + number * width))
		return 1;
	listing->call.value[0] = word;
	listing->call.value[1] = number;
	send_call(&listing->call, listing->counted);
	return 0;
}

static __attribute__((noinline)) long list_packed(u32 number, struct listing *listing)
{
	u32 at = COUNTS_EACH * number;

	if (at >= listing->entries)
		return 1;
	u32 size = 4 * (listing->entries - at);
	KEEP(size);
	if (size > 4 * COUNTS_EACH)
		size = 4 * COUNTS_EACH;
	listing->call.value[0] = at;
	listing->call.value[PROBE_VALUES - 1] = 0;
	if (read_user(&listing->call.value[1], size, listing->address + 4 * at))
		return 1;
	send_call(&listing->call, listing->counted);
	return 0;
}

/* A record of each entry of an array that the function is entered with, or of several at once. */
NOT_INLINED void list_entries(struct open_call *open, struct probed_function *second,
			      struct counters *counted)
{
	struct listing listing = {.call = open->call, .counted = counted};

	listing.call.function = second->number;
	listing.address = open->second[0];
	listing.entries = open->second[1];
	listing.width = second->width;
	if (second->flags & PROBE_PACKED_LIST) {
		listing.entries = second->width;
		run_loop(MOST_PACKED, list_packed, &listing, 0);
	} else {
		run_loop(MOST_LISTED, list_one, &listing, 0);
	}
}

/* Keeps the array that a poll is entered with: what has ended is no longer in it at the return. */
static __attribute__((noinline)) long keep_entries(struct walk *w, struct call_key *key, u64 address,
						   u64 entries, u32 width)
{
	if (!w || !key)
		return 0;
	if (entries > MOST_LISTED)
		entries = MOST_LISTED;
	/* By constants: of the product of two numbers Linux 6.1 knows no bounds. */
	u64 size = width == 4 ? 4 * entries : 8 * entries;
	KEEP(size);
	if (size > 8 * MOST_LISTED)
		size = 8 * MOST_LISTED;
	w->frame[0] = entries;
	if (read_user(&w->frame[1], size, address))
		w->frame[0] = 0;
	map_update(MAP(POLLED), key, w->frame, 0);
	return 0;
}

struct kept_listing {
	struct call call;
	struct counters *counted;
	struct polled *polled;
	u32 width;
	u32 pad;
};

static __attribute__((noinline)) long list_kept(u32 number, struct kept_listing *listing)
{
	struct polled *polled = listing->polled;
	u32 at = number & (MOST_LISTED - 1);

	if (!polled || number >= MOST_LISTED || number >= polled->entries)
		return 1;
	if (listing->width == 4)
		listing->call.value[0] = ((u32 *)polled->words)[at];
	else
		listing->call.value[0] = polled->words[at];
	listing->call.value[1] = number;
	send_call(&listing->call, listing->counted);
	return 0;
}

/* A record of each entry of the array that a poll was entered with. */
NOT_INLINED void list_kept_entries(struct open_call *open, struct call_key *key,
				   struct probed_function *second, struct counters *counted)
{
	struct kept_listing listing = {.call = open->call, .counted = counted, .width = second->width};

	listing.polled = map_lookup(MAP(POLLED), key);
	listing.call.function = second->number;
	listing.call.duration = 0;
	run_loop(MOST_LISTED, list_kept, &listing, 0);
}

#endif
