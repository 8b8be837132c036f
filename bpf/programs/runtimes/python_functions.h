/* Functions of Python, sent with the first path that leads through them: they have names and lines however soon their
 * process ends.
 *
 * All that is copied is memory of the target, which may hold anything: its size is bounded, and counts for the user's
 * budgets. What is not copied, such as longer texts, user space reads while the process lives.
 */
#ifndef HPCD_PYTHON_FUNCTIONS_H
#define HPCD_PYTHON_FUNCTIONS_H

#include "runtimes/python.h"
#include "records.h"
#include "threads/budgets.h"

/* What was sent, by a hash of process, code object and identity: of two with one place the later one is kept. */
DEFINE_MAP(PYTHON_SENT, ARRAY, u32, u64);
DEFINE_MAP(PYTHON_FUNCTIONS, PERCPU_ARRAY, u32, struct function_event);

/* Bytes sent with one path: those of 200 functions. */
#define FUNCTIONS_AT_ONCE (128 << 10)

struct python_sending {
	struct walk *walk;
	struct python_chain *chain;
};

/* Copies the characters of a compact str object to `text`; returns their bytes, 0: it is none, or too long. */
static __always_inline u64 copy_text(struct python *python, u64 *head, u64 address, char *text, u16 *width)
{
	if (read_user(head, PYTHON_TEXT_HEAD, address))
		return 0;
	u32 state = head[PYTHON_TEXT_STATE / 8];
	u64 characters = head[PYTHON_TEXT_LENGTH / 8], size = characters * PYTHON_TEXT_WIDTH(state);
	if (!(state & PYTHON_TEXT_COMPACT) || !size || characters > MOST_SENT_TEXT || size > MOST_SENT_TEXT)
		return 0;
	*width = PYTHON_TEXT_WIDTH(state);
	address += state & PYTHON_TEXT_ASCII ? python->ascii : python->compact;
	KEEP(size);
	size &= MOST_SENT_TEXT;
	return read_user(text, size, address) ? 0 : size;
}

/* Copies as much of a line table as there is room for to `text`. */
static __always_inline void copy_table(struct function_event *function, u64 *head, u64 address, char *text)
{
	function->table = 0;
	function->whole_table = 0;
	if (read_user(head, PYTHON_BYTES_HEAD, address))
		return;
	u64 size = head[PYTHON_BYTES_LENGTH / 8];
	function->whole_table = size;
	if (size > MOST_SENT_TABLE)
		size = MOST_SENT_TABLE;
	KEEP(size);
	size &= MOST_SENT_TABLE;
	if (!read_user(text, size, address + PYTHON_BYTES_HEAD))
		function->table = size;
}

/* Copies a function into the event of this walk's context; returns its bytes, 0: it is left to user space. What has been
 * written is read again later: there is hardly any room for a frame. */
VERIFIED_ONCE int copy_function(u32 context, u64 code, u32 identity)
{
	struct python_chain *chain = map_lookup(MAP(PYTHON_CHAINS), &context);
	struct function_event *function = map_lookup(MAP(PYTHON_FUNCTIONS), &context);
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	if (!w || !chain || !function)
		return 0;
	function->time = w->time;
	function->kind = EVENT_FUNCTION;
	function->tgid = w->tgid;
	function->code = code;
	function->identity = identity;
	context = w->tgid;
	struct python *python = map_lookup(MAP(PYTHONS), &context);
	if (!python || python->identity_bytes > sizeof chain->identity)
		return 0;
	function->version = python->version;
	__builtin_memset(chain->identity, 0, sizeof chain->identity);
	if (read_user(chain->identity, READ_AGAIN(python->identity_bytes) & (2 * sizeof chain->identity - 1),
		      READ_AGAIN(function->code) + python->identity) ||
	    python_identity(chain->identity) != READ_AGAIN(function->identity) ||
	    read_user(&function->first_line, 4, READ_AGAIN(function->code) + python->first_line))
		return 0;
	u32 size = copy_text(python, chain->bytes, chain->identity[0], function->text, &function->file_width);
	function->file = size;
	if (!size)
		return 0;
	size = copy_text(python, chain->bytes, chain->identity[python->name >> 3 & (PYTHON_IDENTITY_WORDS - 1)],
			 function->text + (READ_AGAIN(function->file) & MOST_SENT_TEXT), &function->name_width);
	function->name = size;
	if (!size)
		return 0;
	u64 at = (READ_AGAIN(python->identity_bytes) >> 3) - 1;
	u64 address = chain->identity[at & (PYTHON_IDENTITY_WORDS - 1)];
	at = READ_AGAIN(function->file) + READ_AGAIN(function->name);
	copy_table(function, chain->bytes, address, function->text + (at & (2 * MOST_SENT_TEXT + 1)));
	chain->unsent |= function->table != function->whole_table;
	return sizeof *function - FUNCTION_TEXT + function->file + function->name + function->table;
}

static __attribute__((noinline)) long send_function(u32 number, struct python_sending *sending)
{
	struct python_chain *chain = sending->chain;
	struct walk *w = sending->walk;

	if (!chain || !w || 2 * number >= chain->words)
		return 1;
	u64 code = chain->word[2 * number & (PYTHON_WORDS - 1)];
	if (code >> PYTHON_KIND_SHIFT != FRAME_PYTHON >> PYTHON_KIND_SHIFT) /* of an activation */
		return 0;
	u32 identity = chain->word[(2 * number + 1) & (PYTHON_WORDS - 1)] >> PYTHON_POSITION_BITS;
	u64 hash = hash_mix(hash_mix(HASH_START, code), (u64)w->tgid << 32 | identity);
	u32 place = hash & (SENT_FUNCTIONS - 1), context = w->context;
	u64 *sent = map_lookup(MAP(PYTHON_SENT), &place);
	if (!sent || *sent == hash)
		return 0;
	struct function_event *function = map_lookup(MAP(PYTHON_FUNCTIONS), &context);
	if (!function || chain->sent > FUNCTIONS_AT_ONCE || urgency_of(MAP(EVENTS), 2) == FORCE_WAKEUP) {
		chain->unsent = 1;
		return 1;
	}
	*sent = hash; /* also if it is left to user space: that is asked once */
	u64 size = (u32)copy_function(context, code & PYTHON_ADDRESS_MASK, identity);
	if (!size || size > sizeof *function ||
	    ring_output(MAP(EVENTS), function, size, urgency_of(MAP(EVENTS), 8)))
		chain->unsent = 1;
	else
		chain->sent += size;
	return 0;
}

/* Sends the functions of the path of this walk that were not sent before. */
VERIFIED_ONCE int send_functions(u32 context)
{
	struct python_sending sending = {map_lookup(MAP(SCRATCH), &context), map_lookup(MAP(PYTHON_CHAINS), &context)};
	struct walk *w = sending.walk;
	struct python_chain *chain = sending.chain;

	if (!w || !chain)
		return 0;
	chain->sent = 0;
	chain->unsent = 0;
	run_loop(PYTHON_WORDS / 2, send_function, &sending, 0);
	u64 sent = READ_AGAIN(chain->sent);
	if (sent) {
		charge(walk_budget(w->owner & OWNER_SLOT), w->time, sent);
		charge_ring(MAP(EVENTS), 8, ring_budget(w->owner & OWNER_SLOT, USE_PATHS), w->time, sent);
	}
	return 0;
}

/* Of a path after send_functions(): user space reads the functions that are left to it. */
static __always_inline u64 python_urgency(struct walk *w)
{
	struct python_chain *chain = w->chained ? map_lookup(MAP(PYTHON_CHAINS), &w->context) : 0;

	return chain && chain->unsent ? urgency_of_names(&chain->woken, w->time) : 0;
}

#endif
