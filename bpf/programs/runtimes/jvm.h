/* Java frames in call paths.
 *
 * HotSpot's code has no unwind tables. It is stored in heaps of blocks; a heap's segment map leads from an address to its
 * block, which begins with a CodeBlob: the size of the code's frame, or the name of the interpreter
 * (docs/design/016-java-frames.md). step_jvm() takes one step from such code, in the place of unwind_step().
 *
 * The thread stands anywhere in the code that it executes, so there the instructions say how much of the frame there is.
 * The target's memory may hold anything: a step leads up the stack, or the walk ends.
 */
#ifndef HPCD_JVM_H
#define HPCD_JVM_H

#include "runtimes/jvm_maps.h"
#include "threads/budgets.h"
#include "unwinding.h"

/* Whether the walk is at an address where the JVM of its process has code. */
static __always_inline int in_jvm(struct walk *w)
{
	return w->ip - w->caller - w->code_begin < w->code_bytes;
}

#ifdef HPCD_AARCH64
#define begin_jvm(w)
#define jvm_urgency(w) 0
#define step_jvm(context) 1
#else

/* A walk begins: its process may run a JVM, whose frames mean something in its own address space only. */
static __always_inline void begin_jvm(struct walk *w)
{
	u32 tgid = w->tgid, context = w->context;
	struct jvm *jvm = map_lookup(MAP(JVMS), &tgid);
	struct jvm_frame *at = jvm ? map_lookup(MAP(JVM_FRAMES), &context) : 0;

	if (!at)
		return;
	at->hops = 0;
	at->in_stub = 0;
	w->code_begin = jvm->code_begin;
	w->code_bytes = jvm->code_bytes;
	w->hash = hash_mix(w->hash, (u64)tgid << 32 | w->space_number);
}

static __always_inline u64 jvm_urgency(struct walk *w)
{
	u32 context = w->context;
	struct jvm_frame *at = w->code_bytes ? map_lookup(MAP(JVM_FRAMES), &context) : 0;

	return at ? urgency_of_names(&at->woken, w->time) : 0;
}

#define JVM_MOST_HOPS 32 /* in a segment map, of up to 254 segments of 128 bytes */
#define JVM_MOST_HOPS_A_WALK 4096 /* a map that lies costs no more; honest ones take up to 3 a frame */
#define JVM_FREE 0xff
/* The first letters of the names of CodeBlobs. */
#define JVM_NMETHOD 0x74656d6eU     /* nmethod */
#define JVM_NATIVE 0x6974616eU      /* native nmethod */
#define JVM_INTERPRETER 0x65746e49U /* Interpreter */
#define JVM_FLUSH 0x73756c66U       /* flush_icache_stub, which has no frame */
#define JVM_NO_FRAME (-1)           /* for its size: the code is called, but has no frame */
/* Slots of an interpreter's frame, from the bytecode's address on: the 8th below the frame pointer. */
#define JVM_SLOTS_BELOW 64
#define JVM_SLOT_BYTECODE 0
#define JVM_SLOT_METHOD 5
#define JVM_SLOT_SENDER 7 /* the caller's stack pointer */
#define JVM_SLOT_LINK 8
#define JVM_SLOT_RETURN 9
#define JVM_MOST_FRAME (1 << 20) /* bytes of the stack that a frame takes */
#define JVM_MOST_WORDS_MORE 6 /* that compiled code may have pushed besides its frame */

static __always_inline u64 jvm_word(struct jvm_frame *at, u32 offset)
{
	return at->blob[offset >> 3 & (JVM_BLOB_WORDS - 1)];
}

static __always_inline u32 jvm_half(struct jvm_frame *at, u32 offset)
{
	return jvm_word(at, offset) >> 8 * (offset & 4);
}

/* The address in this field of a CodeBlob; since 23 the field has the distance from the CodeBlob. */
static __always_inline u64 jvm_place(struct jvm *jvm, struct jvm_frame *at, u32 offset)
{
	return jvm->relative ? at->blob_at + (s32)jvm_half(at, offset) : jvm_word(at, offset);
}

/* The number of bytes at the begin of the code in which its frame is not complete; since 24 of 16 bits. */
static __always_inline s16 jvm_frame_complete(struct jvm *jvm, struct jvm_frame *at)
{
	return jvm_word(at, jvm->frame_complete) >> 8 * (jvm->frame_complete & 7);
}

static __always_inline int is_jvm_code(struct walk *w, u64 address)
{
	return address - w->code_begin < w->code_bytes;
}

/* Reads the CodeBlob of the code at `address`; 0: there is none. */
NOT_INLINED int find_blob(struct jvm *jvm, struct jvm_frame *at, u64 address)
{
	u64 begin = 0, map = 0;

	if (!jvm || !at)
		return 0;
	at->back = JVM_FREE;
	NOUNROLL
	for (int i = 0; i < JVM_HEAPS; i++) {
		if (address - jvm->heap_begin[i] < jvm->heap_bytes[i]) {
			begin = jvm->heap_begin[i];
			map = jvm->segment_map[i];
		}
	}
	u64 segment = (address - begin) >> (jvm->segment_shift & 31);
	NOUNROLL
	for (int i = 0; i < JVM_MOST_HOPS; i++) {
		at->hops++;
		if (read_user(&at->back, 1, map + segment) || at->back == JVM_FREE || !at->back)
			break;
		segment -= at->back;
	}
	if (at->back)
		return 0;
	at->blob_at = begin + (segment << (jvm->segment_shift & 31)) + jvm->block_header;
	u32 bytes = jvm->blob_bytes;
	if (bytes > sizeof at->blob || read_user(at->blob, bytes, at->blob_at))
		return 0;
	return !read_user(&at->name, 8, jvm_word(at, jvm->name));
}

/* The caller of a frame whose return address and saved frame pointer are at `top`; 0 on success. */
static __always_inline int leave_at(struct jvm_frame *at, u64 top)
{
	if (read_user(&at->bp, 16, top))
		return -1;
	at->sp = top + 16;
	return 0;
}

/* The caller of code that has nothing on the stack but its return address. */
static __always_inline int leave_frameless(struct jvm_frame *at, u64 sp)
{
	at->sp = sp + 8;
	return read_user(&at->ip, 8, sp);
}

/* Instructions, from at->code[1] on. */
static __always_inline int is_frame_allocation(u8 *code) /* sub rsp, N */
{
	return code[1] == 0x48 && (code[2] == 0x83 || code[2] == 0x81) && code[3] == 0xec;
}

static __always_inline int is_link_store(u8 *code) /* mov [rsp + N], rbp */
{
	return code[1] == 0x48 && code[2] == 0x89 && (code[3] == 0x6c || code[3] == 0xac) && code[4] == 0x24;
}

static __always_inline int is_frame_link(u8 *code) /* mov rbp, rsp */
{
	return code[1] == 0x48 && ((code[2] == 0x8b && code[3] == 0xec) || (code[2] == 0x89 && code[3] == 0xe5));
}

/* Between an epilogue's pop and its end: ret, and what asks for a safepoint before it: cmp rsp, [r15 + N]; ja. Until 15
 * mov r10, [r15 + N]; test [r10], eax, which loops have, too. */
static __always_inline int is_return(u8 *code)
{
	if (code[1] == 0xc3)
		return 1;
	if (code[1] == 0x49 && code[2] == 0x3b && (code[3] == 0xa7 || code[3] == 0x67))
		return 1;
	if (code[1] == 0x0f && code[2] == 0x87 && code[7] == 0xc3)
		return 1;
	if (code[1] == 0x41 && code[2] == 0x85 && code[3] == 0x02 && code[4] == 0xc3)
		return 1;
	return code[1] == 0x4d && code[2] == 0x8b && code[3] == 0x97 && code[8] == 0x41 && code[9] == 0x85 && code[11] == 0xc3;
}

#define JVM_POP_LINK 0x5d  /* pop rbp */
#define JVM_PUSH_LINK 0x55 /* push rbp */

/* From code of the first compiler's runtime, which has a frame pointer and stores registers on the stack bit by bit. 0 if
 * its caller is found. */
static __always_inline int leave_runtime_stub(struct walk *w, struct jvm_frame *at, s64 delta, u64 bytes)
{
	if (!delta)
		return leave_frameless(at, w->sp);
	if (is_frame_link(at->code))
		return leave_at(at, w->sp);
	return w->bp - w->sp >= bytes || leave_at(at, w->bp) || !is_jvm_code(w, at->ip);
}

/* From code with a frame of a known size. */
static __always_inline int leave_sized(struct walk *w, struct jvm *jvm, struct jvm_frame *at, u64 bytes)
{
	s64 delta = w->ip - jvm_place(jvm, at, jvm->code);

	if (!w->caller) {
		u8 *code = at->code;
		s16 complete = jvm_frame_complete(jvm, at);
		if (complete < 0 && !leave_runtime_stub(w, at, delta, bytes))
			return 0;
		if (delta < complete) {
			if (is_frame_allocation(code) && (code[0] == JVM_PUSH_LINK || w->bp == w->sp))
				return leave_at(at, w->sp);
			if (is_frame_link(code))
				return leave_at(at, w->sp);
			if (!is_link_store(code))
				return leave_frameless(at, w->sp);
			return leave_frameless(at, w->sp + bytes - 8);
		}
		if (code[1] == JVM_POP_LINK)
			return leave_at(at, w->sp);
		if (is_return(code))
			return leave_frameless(at, w->sp);
	}
	u64 top = w->sp + bytes - 16;
	NOUNROLL
	for (int i = 0; i < JVM_MOST_WORDS_MORE; i++, top += 8) {
		if (leave_at(at, top))
			return -1;
		if (is_jvm_code(w, at->ip))
			break;
	}
	return 0;
}

#define JVM_ENTRY_COOKIE (~0ULL) /* between the return address and the frame of a method's entry barrier */

/* The caller of a stub without a frame, which may have moved the stack pointer by one word for a call. */
static __always_inline int leave_frameless_call(struct walk *w, struct jvm_frame *at)
{
	if (leave_frameless(at, w->sp))
		return -1;
	return is_jvm_code(w, at->ip) ? 0 : leave_frameless(at, at->sp);
}

/* The target of the call before the return address `ip`, whose instructions are `code`: of call N, the distance from
 * there, and of mov r10, N; call r10, by which the second compiler calls stubs. 0: it is neither. */
static __always_inline u64 jvm_call_target(u64 ip, u64 *code)
{
	if ((code[1] >> 24 & 0xff) == 0xe8)
		return ip + (s64)(s32)(code[1] >> 32);
	return (code[0] >> 24 & 0xffff) == 0xba49 && code[1] >> 40 == 0xd2ff41 ? code[0] >> 40 | code[1] << 24 : 0;
}

/* The caller of a stub in which the thread is: a return address on the stack of a call that leads into this code, up to
 * where the thread is. Stubs such as that of Math.sin() keep a few words there, and no frame pointer. Of several the call
 * that leads to the nearest place: others were to stubs that have returned, and their addresses are left in words that are
 * not in use yet. 0 if it is found. */
NOT_INLINED int find_stub_call(struct walk *w, struct jvm *jvm, struct jvm_frame *at)
{
	if (!w || !jvm || !at)
		return -1;
	u64 distance = w->ip - jvm_place(jvm, at, jvm->code);
	if (read_user(at->words, sizeof at->words, w->sp))
		return -1;
	NOUNROLL
	for (u32 i = 0; i < sizeof at->words / 8; i++) {
		u64 ip = at->words[i];
		if (!is_jvm_code(w, ip - 16) || read_user(at->call, sizeof at->call, ip - 16))
			continue;
		u64 from = w->ip - jvm_call_target(ip, at->call);
		if (from > distance || (from == distance && at->in_stub))
			continue;
		distance = from;
		at->ip = ip;
		at->sp = w->sp + 8 * i + 8;
		at->in_stub = 1;
	}
	if (!at->in_stub)
		return -1;
	return w->bp + 16 == at->sp ? read_user(&at->bp, 8, w->bp) : 0;
}

static __always_inline int leave_stub_at(struct walk *w, struct jvm *jvm, struct jvm_frame *at)
{
	if (!w->caller) {
		u8 *code = at->code;
		if (!find_stub_call(w, jvm, at))
			return 0;
		if (is_frame_link(code))
			return leave_at(at, w->sp);
		if (leave_frameless(at, w->sp))
			return -1;
		if (code[1] == JVM_PUSH_LINK || code[1] == 0xc3 || (u32)at->name == JVM_FLUSH || is_jvm_code(w, at->ip))
			return 0;
		if (w->depth <= 2 && is_jvm_code(w, w->regs.ax)) { /* adapters move the return address */
			at->ip = w->regs.ax;
			at->sp = w->regs.r13 - w->sp < JVM_MOST_FRAME ? w->regs.r13 : w->sp;
			return 0;
		}
	}
	return w->bp - w->sp < JVM_MOST_FRAME ? leave_at(at, w->bp) : -1;
}

/* From a stub, whose frame has no known size: most have a frame pointer. */
static __always_inline int leave_stub(struct walk *w, struct jvm *jvm, struct jvm_frame *at)
{
	if (leave_stub_at(w, jvm, at))
		return -1;
	return at->ip == JVM_ENTRY_COOKIE ? leave_frameless(at, at->sp) : 0;
}

/* Sets the words of a frame of the interpreter that executes `method` at `bytecode`. Returns 1; 0: it is not at that, -1:
 * there is no such method. */
static __always_inline int is_interpreting(struct jvm *jvm, struct jvm_frame *at, u64 method, u64 bytecode)
{
	if (read_user(&at->constants, 8, method + jvm->constants) ||
	    read_user(&at->size, 2, at->constants + jvm->code_size))
		return -1;
	at->word = FRAME_PYTHON | FRAME_JVM | FRAME_JVM_INTERPRETED | (method & PYTHON_ADDRESS_MASK);
	at->position = (u64)(u32)(at->constants >> 3) << PYTHON_POSITION_BITS;
	u64 index = bytecode - at->constants - jvm->bytecodes;
	if (index >= at->size)
		return 0;
	at->position |= index;
	return 1;
}

/* Whether `sp` can be the caller's stack pointer: it is a little above this one. */
static __always_inline int is_sender(struct walk *w, u64 sp)
{
	return sp - w->sp < JVM_MOST_FRAME;
}

#define JVM_MOST_RETURN_ENTRY 64 /* bytes at a return address in which the interpreter continues its frame */

static __always_inline int is_return_register(struct walk *w, u64 address)
{
	return is_jvm_code(w, address) && w->ip - address >= JVM_MOST_RETURN_ENTRY;
}

/* From the interpreter where a method has no frame yet, or none any more. At its entry r13 has the caller's stack pointer,
 * rbx the Method; the return address is on the stack, or in rax; methods that the interpreter has code for leave from
 * there, some by rdi. At other methods' end rbx has the stack pointer, and rsi the return address once it is popped.
 * 1: there is a frame, or what should be the return address is that of a call in the interpreter. */
static __always_inline int leave_without_frame(struct walk *w, struct jvm *jvm, struct jvm_frame *at)
{
	int enters = is_sender(w, w->regs.r13), leaves = is_sender(w, w->regs.bx);

	if (!(enters || leaves) || read_user(&at->ip, 8, w->sp))
		return 1;
	if (!is_jvm_code(w, at->ip)) {
		at->ip = w->regs.si;
		if (enters)
			at->ip = is_return_register(w, w->regs.ax) ? w->regs.ax : w->regs.di;
		if (!is_return_register(w, at->ip))
			return 1;
	}
	if (enters)
		is_interpreting(jvm, at, w->regs.bx, 0);
	at->sp = enters ? w->regs.r13 : w->regs.bx;
	return 0;
}

/* From a frame of the interpreter. Slots below the stack pointer are not stored yet: their values are in registers, as at
 * the method's entry. */
static __always_inline int leave_interpreter(struct walk *w, struct jvm *jvm, struct jvm_frame *at)
{
	int innermost = !w->caller && w->depth == 2, called_stub = at->in_stub;
	u64 *slot = at->slots;

	/* The interpreter's code of a method such as Math.sin() makes no frame before it calls the stub. */
	at->in_stub = 0;
	if (called_stub && is_sender(w, w->regs.r13) && !read_user(&at->ip, 8, w->sp) && is_jvm_code(w, at->ip)) {
		at->sp = w->regs.r13;
		return 0;
	}
	if (w->bp - w->sp >= JVM_MOST_FRAME || read_user(slot, sizeof at->slots, w->bp - JVM_SLOTS_BELOW))
		return innermost ? leave_without_frame(w, jvm, at) : -1;
	u64 stored = w->bp - w->sp;
	int partly = innermost && stored <= JVM_SLOTS_BELOW && is_jvm_code(w, slot[JVM_SLOT_RETURN]);
	if (innermost && !partly && !leave_without_frame(w, jvm, at))
		return 0;
	u64 method = partly ? w->regs.bx : slot[JVM_SLOT_METHOD];
	if (!(innermost && is_interpreting(jvm, at, method, w->regs.r13) > 0) &&
	    is_interpreting(jvm, at, method, partly ? 0 : slot[JVM_SLOT_BYTECODE]) < 0)
		return -1;
	at->sp = partly && stored < 8 ? w->regs.r13 : slot[JVM_SLOT_SENDER];
	at->bp = slot[JVM_SLOT_LINK];
	at->ip = slot[JVM_SLOT_RETURN];
	return is_jvm_code(w, at->ip) ? 0 : -1;
}

/* The words of a frame of code with this CodeBlob; a frame that waits to be deoptimised has its place in its frame. */
static __always_inline void name_blob(struct walk *w, struct jvm *jvm, struct jvm_frame *at, int compiled)
{
	u64 code = jvm_place(jvm, at, jvm->code);

	at->word = FRAME_PYTHON | FRAME_JVM | (at->blob_at & PYTHON_ADDRESS_MASK);
	at->position = 0;
	if (!compiled)
		return;
	at->ip = w->ip;
	if (w->caller && at->ip == jvm_place(jvm, at, jvm->deopt_handler))
		read_user(&at->ip, 8, w->sp + jvm_half(at, jvm->original_pc));
	at->position = (u64)jvm_half(at, jvm->compile_id) << PYTHON_POSITION_BITS |
		       ((at->ip - code) & ((1 << PYTHON_POSITION_BITS) - 1));
}

static __always_inline void put_jvm_word(struct walk *w, u64 n, u64 word)
{
	if (n < MAX_FRAMES)
		w->frame[n] = word;
	w->hash = hash_mix(w->hash, word);
}

NOT_INLINED int leave_jvm_frame(struct walk *w, struct jvm *jvm, struct jvm_frame *at)
{
	if (!w || !jvm || !at)
		return -1;
	u32 name = at->name;
	int compiled = name == JVM_NMETHOD || name == JVM_NATIVE;
	s32 words = jvm_half(at, jvm->frame_size);
	u64 bytes = 8 * (u64)(u32)words;

	name_blob(w, jvm, at, compiled);
	at->bp = w->bp;
	if (!w->caller && read_user(at->code, sizeof at->code, w->ip - 1))
		return -1;
	if (name == JVM_INTERPRETER)
		return leave_interpreter(w, jvm, at);
	if (bytes >= 16 && bytes < JVM_MOST_FRAME)
		return leave_sized(w, jvm, at, bytes);
	if (w->caller && words == JVM_NO_FRAME)
		return leave_frameless_call(w, at);
	return leave_stub(w, jvm, at);
}

/* From Java's code to its caller. 1: the walk has ended. */
__attribute__((noinline)) int step_jvm(u32 context)
{
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct jvm_frame *at = map_lookup(MAP(JVM_FRAMES), &context);

	if (!w || !at)
		return 1;
	u32 tgid = w->tgid;
	struct jvm *jvm = map_lookup(MAP(JVMS), &tgid);
	if (!jvm)
		return stop(w, END_JVM_FRAME);
	u64 first = place_of_frame(w), second = place_of_frame(w);
	u64 hops = at->hops;
	int failed = hops > JVM_MOST_HOPS_A_WALK || !find_blob(jvm, at, w->ip - w->caller);
	charge(walk_budget(w->owner & OWNER_SLOT), w->time, at->hops - hops);
	if (failed) {
		at->word = FRAME_PYTHON | FRAME_JVM;
		at->position = 0;
	} else {
		failed = leave_jvm_frame(w, jvm, at);
	}
	put_jvm_word(w, first, at->word);
	put_jvm_word(w, second, FRAME_PYTHON | FRAME_PYTHON_POSITION | at->position);
	/* A thread may be where nothing of its innermost frame is on the stack any more. */
	if (failed || at->sp < w->sp + !!w->caller || at->ip >= USER_END || at->ip < 4096)
		return stop(w, END_JVM_FRAME);
	w->sp = at->sp;
	w->bp = at->bp;
	w->ip = at->ip;
	w->bx_at = BX_UNAVAILABLE;
	w->link = 0;
	w->caller = 1;
	return 0;
}
#endif

#endif
