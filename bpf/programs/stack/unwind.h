/* The unwind step: from one frame to its caller.
 *
 * The same code runs in the kernel and in user space. The includer defines
 *   BLOCK_AT(address)          struct block * of the block that holds a word address, or 0
 *   RULE_AT(index)             struct rule *, or 0
 *   READ_USER(copied, dst, size, src)  0 on success
 *   THREAD_POINTER(dst)        0 on success; where it is not defined nothing is known of it
 *   RESTORE_RETURN_ADDRESS(w)  where the kernel has replaced return addresses on the stack
 *   HASH_FIRST, HASH_SECOND    the factors of hash_mix()
 * and the integer types u8..u64, s16..s64. `copied` is a constant, 1: the stack is a copy, in which
 * return addresses have been restored, and nothing else is known of the thread.
 *
 * Cost: of an address whose rule is known (struct known_rule) one or two reads of the stack. Else one
 * comparison when the caller lies in the same module as the callee, or a binary search of the process'
 * mappings; then a directory word, a group of about 16 rows, and a rule.
 */
#ifndef HPCD_STACK_UNWIND_H
#define HPCD_STACK_UNWIND_H

#include "compiler.h"
#include "stack/rules.h"
#include "stack/table.h"
#include "stack/unwind_status.h"

#ifndef THREAD_POINTER
#define THREAD_POINTER(dst) (-1)
#endif
#ifndef RESTORE_RETURN_ADDRESS
#define RESTORE_RETURN_ADDRESS(walk) ((void)0)
#endif

/* hpcd.model.frame */
#define FRAME_MODULE_SHIFT 40
#define FRAME_OFFSET_MASK ((1ULL << FRAME_MODULE_SHIFT) - 1)
#define FRAME_RAW (1ULL << 62)
#define FRAME_RAW_MASK ((1ULL << 57) - 1)

#define MAX_KERNEL_FRAMES 127 /* kernel.perf_event_max_stack's default, the limit of bpf_get_stack */
#define MAX_USER_FRAMES 1024
/* Of a deeper stack the outermost frames are kept in a ring behind the innermost ones:
 * stack_resolver.py puts them in order and says how many are left out between. */
#define OUTERMOST_FRAMES 256
#define INNERMOST_FRAMES (MAX_USER_FRAMES - OUTERMOST_FRAMES)
#define MAX_DEPTH 16384
#define MAX_FRAMES (MAX_KERNEL_FRAMES + MAX_USER_FRAMES)

/* User addresses of 4- and 5-level paging lie below this. */
#define USER_END (1ULL << 56)

/* A signal handler's return address points at the kernel's trampoline, behind no call. */
#define SIGNAL_NO (0)

#ifdef HPCD_AARCH64
struct registers { /* struct pt_regs up to syscallno */
	u64 x[31];
	u64 sp, ip, pstate, orig_x0;
	s32 syscall_number, pad;
};
#define REGISTER_FP(regs) ((regs)->x[29])
#define SYSTEM_CALL(regs) ((regs)->orig_x0)
#define CALL_NUMBER(regs) ((regs)->syscall_number)
#define FIRST_ARGUMENT(regs) ((regs)->orig_x0)
#define SECOND_ARGUMENT(regs) ((regs)->x[1])
#define THIRD_ARGUMENT(regs) ((regs)->x[2])
#define FUTEX_CALL 98
#define IN_USER_MODE(regs) (((regs)->pstate & 15) == 0)
/* An exec returns to the new program's first instruction, with all registers but the call's number cleared. */
#define BEGINS_PROGRAM(regs) ((regs)->x[30] == 0 && (regs)->x[29] == 0 && (regs)->x[8] == 0)
#define IN_SYSTEM_CALL(regs) ((regs)->syscall_number >= 0 && !BEGINS_PROGRAM(regs))
/* Pointer authentication codes fill the bits above the address. */
#define CODE_ADDRESS(word) ((word) & ((1ULL << 48) - 1))
#else
struct registers { /* x86-64 struct pt_regs */
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	u64 orig_ax, ip, cs, flags, sp, ss;
};
#define REGISTER_FP(regs) ((regs)->bp)
#define SYSTEM_CALL(regs) ((regs)->orig_ax)
#define CALL_NUMBER(regs) ((regs)->orig_ax)
#define FIRST_ARGUMENT(regs) ((regs)->di)
#define SECOND_ARGUMENT(regs) ((regs)->si)
#define THIRD_ARGUMENT(regs) ((regs)->dx)
#define FUTEX_CALL 202
#define IN_USER_MODE(regs) (((regs)->cs & 3) == 3)
/* A call that a signal interrupts returns to the signal's handler (arch/x86/kernel/signal_64.c):
 * the handler's first instruction stands behind no call. */
#define BEGINS_HANDLER(regs)                                          \
	((regs)->ax == 0 && (regs)->dx == (regs)->sp + 8 &&           \
	 (regs)->si == (regs)->sp + 8 + SIGFRAME_UCONTEXT_SIZE)
/* An exec returns to the new program's first instruction, with all registers cleared; a system call
 * leaves the flags in r11, which are never 0. */
#define BEGINS_PROGRAM(regs) ((regs)->r11 == 0 && (regs)->cx == 0 && (regs)->bx == 0)
/* orig_ax is the call's number; after a fault or an interrupt it is negative. */
#define IN_SYSTEM_CALL(regs) \
	((s64)(regs)->orig_ax >= 0 && !BEGINS_HANDLER(regs) && !BEGINS_PROGRAM(regs))
#define CODE_ADDRESS(word) (word)
#endif

/* A read of user memory costs as much as everything else a frame takes, and little more for many
 * words than for one: this number is read at once, which is several frames'. */
#define STACK_WORDS 128
#define NO_STACK 1ULL /* stack words are aligned: none lies in a window that is not */

/* Rules that walks have looked up, by address: the look-up is most of what a step takes, in memory that the
 * program has pushed out of the processor's caches since the last sample. A space never changes, and
 * no other has its number, so nothing known of it is ever wrong. Like struct walk, this is memory of one
 * CPU's walks in one context. docs/design/001-unwind-tables.md has the figures. */
#define KNOWN_RULES 512
#define KNOWN_STEPS 8 /* taken at once */

struct known_rule {
	u64 address; /* 0: nothing is known here */
	u64 frame; /* as in frame[] of struct walk */
	struct rule rule; /* that of the address */
	u32 space; /* its number */
	u32 plain; /* PLAIN_SP or PLAIN_FP: follow_known() can step by it */
	u64 pad[3]; /* so that it lies in one line of the caches */
};

/* Rules of most frames: the return address is on the stack, and the frame pointer, too, or it has not
 * changed. The CFA is found by the stack pointer, or by the frame pointer. */
#define PLAIN_SP 1
#define PLAIN_FP 2

struct known_rules {
	struct known_rule at[KNOWN_RULES]; /* by known_at() */
};

struct walk {
	u64 ip, sp, bp; /* registers of the frame the walk is at */
	u64 link;        /* the link register (aarch64) where it is known; 0: it is not */
	u64 spill; /* what FORGET() stores */
	u64 bx_at;       /* where the caller's rbx was saved; 0: still regs.bx */
	u64 signal_at;   /* the signal frame that has the registers of the frame at depth interrupted */
	u64 hash; /* hash_mix() of the frames so far */
	u32 frames;      /* used of frame[] */
	u32 caller;      /* 1: ip is a return address, 0: ip is where execution stands */
	u32 depth;       /* user frames so far */
	u32 interrupted; /* depth of the frame that a signal has interrupted; 0: none was */
	u32 ending; /* enum unwind_status, once the walk has ended */
	struct space space; /* the process' mappings */
	u32 space_number; /* 0: what is looked up is not kept, as of a copied stack */
	u32 owner;       /* slot of its user's budgets, and above it what the report is to say (enum report_flag) */
	struct known_rule looked_up; /* of a copied stack */
	struct mapping mapping; /* of the last frame that was looked up */
	struct mapping other;   /* the one before that: calls go back and forth */
	struct registers regs; /* of the thread in user mode */
	u64 words_at;    /* address of words[]; NO_STACK: nothing is held */
	u64 words[STACK_WORDS]; /* memory of the stack, read at once */
	u64 anchor;      /* runtimes/python.h: the next object on the stack that evaluates Python; 0: none is known */
	u64 from;        /* sp before the step */
	u32 python_at;   /* its place in the chain of Python frames, or that of the next word of its frames */
	u32 python_left; /* words of these frames that are not in the path yet */
	u64 chained;     /* 1: there is a chain */
	u64 code_begin, code_bytes; /* runtimes/jvm.h: where the process's JVM has code; 0 bytes: it runs none */
	u64 trampoline;  /* the address that replaced return addresses are; 0: none is */
	u64 replaced;    /* the kernel's list of those not met yet */
	u64 value;       /* the sample's contents besides the path */
	u32 event; /* of the sample: number of a perf event, or enum switch_event */
	u32 context;     /* which of the CPU's scratch areas and stack caches this walk uses */
	/* From here on the walk is also the event sent to user space: StackEvent of bpf/wire.py. */
	u64 time;
	u32 kind, tgid; /* EVENT_STACK or EVENT_COPIED; the process */
	u32 stack, thread; /* as in struct sample */
	u16 kernel_frames, user_frames, end_reason, cache; /* frames of either part; enum unwind_status; as in struct sample */
	u64 frame[MAX_FRAMES + 1]; /* innermost first, kernel then user: hpcd/model/frame.py */
};

/* The verifier follows every number it can bound, so each turn of a search would be a state of its
 * own: 131,000 instructions verified for one frame. It knows nothing of a number that has been in
 * a map, and paths that differ only in such numbers are one: docs/design/001-unwind-tables.md. */
#define FORGET(w, value)                                  \
	({                                                \
		*(volatile u64 *)&(w)->spill = (value);   \
		*(volatile u64 *)&(w)->spill;             \
	})

/* The same for a variable that is in a map already: it is read again. */
#define READ_AGAIN(variable) (*(volatile __typeof__(variable) *)&(variable))

/* step when a < b, else 0: as arithmetic, because the processor cannot guess which way a search
 * goes, and the verifier would follow both. Without KEEP the compiler makes it a branch again. */
static __always_inline u32 step_if_less(u64 a, u64 b, u32 step)
{
	s64 difference = (s64)(a - b);

	KEEP(difference);
	return step & (u32)(difference >> 63);
}

/* Adds a value to a hash. Paths with the same hash are taken for one, so a program that could make its paths have the
 * hash of another's would have that program's frames shown for its own, or the other way round. It chooses the
 * addresses of its paths, but sees no hash (at most, by how long samples take, whether paths share a set of the cache),
 * and the start and the two odd factors are drawn for each recording.
 *
 * A step is a secret permutation P of hash ^ value, the chain the CBC-MAC of P. Two paths that differ in a frame have
 * one hash only if a later frame differs by exactly what P makes of that difference. An unknown odd factor carries a
 * difference to all bits above its lowest one, the swap brings the highest to the bottom, and the second factor carries
 * them over all 64. One factor, or shifts that are known, would not do: differences in the highest bits of an address
 * come through these in few ways. tests/unit/bpf/test_path_hash.py counts them. */
static __always_inline u64 hash_mix(u64 hash, u64 value)
{
	hash = __builtin_bswap64((hash ^ value) * HASH_FIRST);
	return __builtin_bswap64(hash * HASH_SECOND);
}

static __always_inline u32 stop(struct walk *w, u32 ending)
{
	w->ending = ending;
	return 1;
}

static __always_inline int lies_in(const struct mapping *mapping, u64 address)
{
	return address - mapping->start < (u64)mapping->pages << 12;
}

/* Finds the mapping that holds address; 0 when there is none. */
static __always_inline int find_mapping(struct walk *w, u64 address)
{
	u32 low = 0, high = (w->space.count + MAPPINGS_PER_BLOCK - 1) / MAPPINGS_PER_BLOCK;
	struct mapping_block *block;

	if (high > MAX_SPACE_BLOCKS || high == 0)
		return 0;
	NOUNROLL
	for (int i = 0; i < 6; i++) { /* log2(MAX_SPACE_BLOCKS) + 1 */
		low = FORGET(w, low);
		high = FORGET(w, high);
		if (low + 1 >= high)
			break;
		u32 middle = (low + high) >> 1;
		block = (struct mapping_block *)BLOCK_AT(w->space.address + (middle << BLOCK_SHIFT));
		if (!block)
			return 0;
		if (block->mapping[0].start <= address)
			low = middle;
		else
			high = middle;
	}
	low = FORGET(w, low);
	block = (struct mapping_block *)BLOCK_AT(w->space.address + (low << BLOCK_SHIFT));
	if (!block)
		return 0;
	u32 count = w->space.count - low * MAPPINGS_PER_BLOCK;
	if (count > MAPPINGS_PER_BLOCK)
		count = MAPPINGS_PER_BLOCK;
	low = 0;
	NOUNROLL
	for (int i = 0; i < 8; i++) { /* log2(MAPPINGS_PER_BLOCK) + 1 */
		if (count <= 1)
			break;
		u32 half = count >> 1;
		low += step_if_less(block->mapping[(low + half) & (MAPPINGS_PER_BLOCK - 1)].start,
				    address + 1, half);
		count -= half;
	}
	low = FORGET(w, low);
	w->mapping = block->mapping[low & (MAPPINGS_PER_BLOCK - 1)];
	return lies_in(&w->mapping, address);
}

/* Index of the rule for ELF virtual address vaddr of the current mapping; -1: damaged. */
static __always_inline int find_rule(struct walk *w, u64 vaddr)
{
	u64 pc = vaddr - ((u64)w->mapping.base << 12);
	u32 entry = w->mapping.dir + (u32)(pc >> PAGE_BITS);
	u32 within = pc & ((1 << PAGE_BITS) - 1);
	struct block *block = BLOCK_AT(entry);

	if (!block)
		return -1;
	u32 group = block->word[entry & (BLOCK_WORDS - 1)];
	block = BLOCK_AT(group);
	if (!block)
		return -1;
	group &= BLOCK_WORDS - 1;
	u32 first = block->word[group];
	u32 low = 0, count = first & 0xffff;
	NOUNROLL
	for (int i = 0; i < 11; i++) { /* log2(BLOCK_WORDS) + 1 */
		if (count <= 1)
			break;
		u32 half = count >> 1;
		u32 row = block->word[(group + low + half) & (BLOCK_WORDS - 1)];
		low += step_if_less(row & 0xffff, within + 1, half);
		count -= half;
	}
	low = FORGET(w, low);
	return block->word[(group + low) & (BLOCK_WORDS - 1)] >> 16;
}

/* A word of the stack; callers' lie above. */
static __always_inline int read_word(struct walk *w, int copied, u64 *word, u64 address)
{
	u64 within = address - w->words_at;

	if (within > 8 * (STACK_WORDS - 1) || within & 7) {
		w->words_at = address;
		if (READ_USER(copied, w->words, sizeof w->words, address)) {
			/* It ends sooner. */
			w->words_at = NO_STACK;
			if (READ_USER(copied, w->words, 8, address))
				return -1;
		}
		within = 0;
	}
	*word = w->words[within >> 3 & (STACK_WORDS - 1)];
	return 0;
}

/* The DWARF number of the register that system calls return in. */
#define SYSTEM_CALL_RESULT 0

/* In place of the address of a register that is lost: no user address. */
#define BX_UNAVAILABLE (~0ULL)

#ifdef HPCD_AARCH64
/* struct rt_sigframe (arch/arm64/kernel/signal.c): siginfo of 128 bytes, ucontext whose mcontext
 * begins at 176 with the fault address; then x0..x30, sp, pc. */
#define SIGFRAME_X0 312
#define SIGFRAME_BP 544
#define SIGFRAME_SP 560
#else
/* x86-64 struct rt_sigframe as the restorer sees it: sp points at its ucontext, whose gregs begin
 * at 40 (arch/x86/include/uapi/asm/sigcontext.h: r8..r15, di, si, bp, bx, dx, ax, cx, sp, ip). */
#define SIGFRAME_UCONTEXT_SIZE 304
#define SIGFRAME_R8 40
#define SIGFRAME_BP 120
#define SIGFRAME_BX 128
#define SIGFRAME_SP 160
#endif

/* The value of a DWARF register for CFA_REG. All are known where execution stands and where a
 * signal has interrupted it; in other frames only rbx. */
static __always_inline int register_value(struct walk *w, int copied, u32 dwarf, u64 *value)
{
#ifdef HPCD_AARCH64
	if (dwarf > 30)
		return -1;
	if (w->depth == w->interrupted)
		return READ_USER(copied, value, 8, w->signal_at + SIGFRAME_X0 + 8 * dwarf);
	if (w->depth != 1)
		return -1;
	*value = w->regs.x[dwarf];
	return 0;
#else
	if (dwarf == 3 && w->bx_at)
		return READ_USER(copied, value, 8, w->bx_at);
	if (dwarf == 3) {
		*value = w->regs.bx;
		return 0;
	}
	if (w->depth == w->interrupted) {
		if (dwarf > 15)
			return -1;
		if (dwarf > 7)
			return READ_USER(copied, value, 8, w->signal_at + SIGFRAME_R8 + 8 * (dwarf - 8));
		/* rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp: their places, as bytes of one number */
		u64 places = 0xa078687080988890ULL >> 8 * dwarf;
		return READ_USER(copied, value, 8, w->signal_at + (places & 0xff));
	}
	if (w->depth != 1)
		return -1;
	switch (dwarf) {
	case 0: *value = w->regs.ax; return 0;
	case 1: *value = w->regs.dx; return 0;
	case 2: *value = w->regs.cx; return 0;
	case 4: *value = w->regs.si; return 0;
	case 5: *value = w->regs.di; return 0;
	case 8: *value = w->regs.r8; return 0;
	case 9: *value = w->regs.r9; return 0;
	case 10: *value = w->regs.r10; return 0;
	case 11: *value = w->regs.r11; return 0;
	case 12: *value = w->regs.r12; return 0;
	case 13: *value = w->regs.r13; return 0;
	case 14: *value = w->regs.r14; return 0;
	case 15: *value = w->regs.r15; return 0;
	}
	return -1;
#endif
}

/* Where the goroutine that called Go's system stack goes on, by the words that lead there; 0: the
 * thread has none, as it looks for another. Its stack may lie below this one. */
static __always_inline int goroutine_stack(int copied, const struct rule *rule, u64 *cfa)
{
	u64 at = 0;

	*cfa = 0;
	if (copied || THREAD_POINTER(&at) || READ_USER(copied, &at, 8, at + rule->cfa_off) ||
	    READ_USER(copied, &at, 8, at + rule->fp_off) || READ_USER(copied, &at, 8, at + rule->bx_off))
		return -1;
	if (!at)
		return 0;
	if (READ_USER(copied, &at, 8, at + rule->ra_off))
		return -1;
	*cfa = at + rule->cfa_reg;
	return 0;
}

/* PLAIN_SP, PLAIN_FP, or 0 where a rule is not plain. */
static __always_inline u32 plain_kind(const struct rule *rule)
{
	if (rule->ra_kind != RA_AT_CFA || rule->bx_kind != BX_AT_CFA || rule->fp_kind > FP_AT_CFA)
		return 0;
	return rule->cfa_kind == CFA_SP ? PLAIN_SP : rule->cfa_kind == CFA_FP ? PLAIN_FP : 0;
}

/* Fills in what is to be known of an address, its frame in any case; returns how the path ends if it can lead
 * no further. */
static __always_inline u32 look_up_rule(struct walk *w, struct known_rule *known, u64 address)
{
	known->address = 0;
	known->frame = FRAME_RAW | (address & FRAME_RAW_MASK);
	if (!lies_in(&w->mapping, address)) {
		struct mapping previous = w->mapping;
		w->mapping = w->other;
		w->other = previous;
	}
	if (!lies_in(&w->mapping, address) && !find_mapping(w, address)) {
		w->mapping.pages = 0;
		return END_NO_MAPPING;
	}
	if (!(w->mapping.module & MODULE_MASK)) /* mapped, but not analysed yet */
		return END_NO_TABLE;
	u64 vaddr = address - w->mapping.bias;
	known->frame = (u64)(w->mapping.module & MODULE_MASK) << FRAME_MODULE_SHIFT |
		       (vaddr & FRAME_OFFSET_MASK);
	if (w->mapping.module & MAPPING_FRAME_POINTER) {
		known->rule.cfa_kind = CFA_CHAIN;
	} else {
		if (!w->mapping.dir) /* no table could be made: waiting for one would be in vain */
			return END_NO_ROWS;
		int index = find_rule(w, vaddr);
		if (index < 0)
			return END_TABLE_DAMAGED;
		struct rule *rule = RULE_AT(index);
		if (!rule)
			return END_TABLE_DAMAGED;
		known->rule = *rule;
	}
	known->plain = plain_kind(&known->rule);
	known->space = w->space_number;
	if (w->space_number)
		known->address = address;
	return END_COMPLETE;
}

static __always_inline struct known_rule *known_at(struct known_rules *rules, u64 address)
{
	return &rules->at[(address ^ address >> 9) & (KNOWN_RULES - 1)];
}

/* Takes steps by plain rules that are known, as unwind_step() would; what they change stays in registers.
 * Returns how many: KNOWN_STEPS, or fewer where unwind_step() is to go on. */
static __always_inline u32 follow_known(struct walk *w, struct known_rules *rules)
{
	u64 ip = w->ip - w->caller, sp = w->sp, bp = w->bp, hash = w->hash, bx_at = w->bx_at;
	u64 n = w->depth, next, next_bp, anchor = w->anchor;
	u32 taken;

	NOUNROLL
	for (taken = 0; taken < KNOWN_STEPS; taken++) {
		struct known_rule *known = known_at(rules, ip);
		u32 plain = known->plain;
		if (known->address != ip || known->space != w->space_number || !plain ||
		    n >= INNERMOST_FRAMES)
			break;
		u64 cfa = (plain == PLAIN_SP ? sp : bp) + known->rule.cfa_off;
		if (cfa <= sp || anchor - sp < cfa - sp) /* it evaluates Python: step() is to see that */
			break;
		next_bp = bp;
		if (known->rule.fp_kind && read_word(w, 0, &next_bp, cfa + known->rule.fp_off))
			break;
		if (read_word(w, 0, &next, cfa + known->rule.ra_off))
			break;
		next = CODE_ADDRESS(next);
		if (next >= USER_END || next < 4096 || next == w->trampoline)
			break;
		if (known->rule.bx_off)
			bx_at = cfa + known->rule.bx_off;
		w->frame[(w->kernel_frames + n) & (MAX_USER_FRAMES - 1)] = known->frame;
		hash = hash_mix(hash, known->frame);
		n++;
		ip = next - 1;
		sp = cfa;
		bp = next_bp;
	}
	if (taken) {
		w->ip = ip + 1;
		w->caller = 1;
		w->sp = sp;
		w->bp = bp;
		w->hash = hash;
		w->bx_at = bx_at;
		w->depth = n;
		w->frames = w->kernel_frames + n;
		w->link = 0;
	}
	return taken;
}

/* The place in frame[] of the next user frame, which is counted; MAX_FRAMES: there is none. 64 bits: what is checked
 * is what indexes, or the verifier takes them for two values. */
static __always_inline u64 place_of_frame(struct walk *w)
{
	u64 n = w->depth;

	if (n >= MAX_DEPTH)
		return MAX_FRAMES;
	w->depth = n + 1;
	if (n >= INNERMOST_FRAMES)
		n = INNERMOST_FRAMES + ((n - INNERMOST_FRAMES) & (OUTERMOST_FRAMES - 1));
	n += w->kernel_frames;
	if (n >= w->frames && n < MAX_FRAMES)
		w->frames = n + 1;
	return n;
}

/* The parts of a step return 0 if the walk continues, or 1 with w->ending set. */

/* Records the frame of an address and finds its rule. */
static __always_inline u32 enter_frame(struct walk *w, struct known_rule *known, u64 address)
{
	u64 n = place_of_frame(w);
	u32 ending = END_COMPLETE;

	if (n >= MAX_FRAMES)
		return stop(w, END_DEPTH_LIMIT);
	if (known->address != address || known->space != w->space_number)
		ending = look_up_rule(w, known, address);
	u64 frame = known->frame;
	/* A handler's return address is no call's but the restorer's first instruction. */
	if (!ending && known->rule.cfa_kind == CFA_SIGNAL)
		frame += w->caller;
	w->frame[n] = frame;
	w->hash = hash_mix(w->hash, frame);
	return ending ? stop(w, ending) : 0;
}

/* Whether the 16 bytes of code at the thread's instruction pointer are of a trampoline, which leads on by a jump and leaves
 * all registers that a caller keeps as they are: libffi's closures are endbr64; lea -11(%rip), %r10; jmp *7(%rip), without
 * endbr64 before 3.4 and 4 bytes less. Jumps further on may be of functions that have a frame. */
static __always_inline int is_trampoline(u64 *code)
{
#ifdef HPCD_AARCH64
	(void)code;
	return 0;
#else
	if ((u32)code[0] == 0xfa1e0ff3) /* endbr64 */
		code[0] = code[0] >> 32 | code[1] << 32;
	return ((code[0] & 0xffffff) == 0x158d4c && code[0] >> 32 == 0xffffffff) ||
	       ((code[0] & 0xffff) == 0x25ff && (u32)(code[0] >> 16) <= 7);
#endif
}

/* CFA_CHAIN. A frame pointer of 0 is broken, too: no thread begins in such code, and what keeps no frame pointers may
 * have 0 in rbp. */
static __always_inline u32 follow_chain(struct walk *w, int copied)
{
	u64 pair[2];

	if (!w->caller && !copied && !READ_USER(copied, pair, 16, w->ip) && is_trampoline(pair)) {
		if (read_word(w, copied, &pair[0], w->sp))
			return stop(w, END_BROKEN_CHAIN);
		w->sp += 8;
		w->ip = pair[0];
		return 0;
	}
	if (w->bp < w->sp || read_word(w, copied, &pair[0], w->bp) ||
	    read_word(w, copied, &pair[1], w->bp + 8))
		return stop(w, END_BROKEN_CHAIN);
	w->sp = w->bp + 16;
	w->bp = pair[0];
	w->ip = pair[1];
	return 0;
}

/* CFA_SIGNAL, in the restorer: to where the signal has interrupted the thread. */
static __always_inline u32 leave_signal_frame(struct walk *w, int copied)
{
	u64 pair[2];

	if (READ_USER(copied, pair, 16, w->sp + SIGFRAME_BP))
		return stop(w, END_READ_FAULT);
	w->bp = pair[0];
	w->signal_at = w->sp;
	w->interrupted = w->depth + 1;
#ifdef HPCD_AARCH64
	w->link = pair[1];
#else
	w->bx_at = w->sp + SIGFRAME_BX;
#endif
	if (READ_USER(copied, pair, 16, w->sp + SIGFRAME_SP))
		return stop(w, END_READ_FAULT);
	w->sp = pair[0];
	w->ip = pair[1];
	w->caller = 0;
	return w->ip >= USER_END ? stop(w, END_BAD_ADDRESS) : 0;
}

/* CFA_GOROUTINE: from Go's system stack to the goroutine that has called it. */
static __always_inline u32 enter_goroutine(struct walk *w, int copied, const struct rule *rule)
{
	u64 cfa, ip;

	if (goroutine_stack(copied, rule, &cfa))
		return stop(w, END_READ_FAULT);
	if (!cfa)
		return stop(w, END_COMPLETE);
	if (read_word(w, copied, &ip, cfa - 8))
		return stop(w, END_READ_FAULT);
	w->bx_at = BX_UNAVAILABLE;
	w->ip = ip;
	w->sp = cfa;
	return 0;
}

/* In place of a CFA where the walk ends: one number, which the verifier forgets. With a result besides the CFA it follows
 * each kind of rule to the end of the walk: 488,000 instructions for 32 steps in place of 321,000. */
#define NO_CFA (~0ULL)
static __always_inline u64 no_cfa(struct walk *w, u32 ending)
{
	w->ending = ending;
	return NO_CFA;
}

/* The CFA that a rule defines; NO_CFA: w->ending is set. */
static __always_inline u64 find_cfa(struct walk *w, int copied, const struct rule *rule)
{
	s64 off = rule->cfa_off;
	u64 value;

	switch (rule->cfa_kind) {
	case CFA_SP:
	case CFA_SIGNAL:
		return w->sp + off;
	case CFA_FP:
	case CFA_OTHER_STACK:
		return w->bp + off;
	case CFA_FRAME_POINTER:
		return w->bp + 16;
	case CFA_PLT:
		return w->sp + 8 + ((w->ip & 15) >= (u64)off ? 8 : 0);
	case CFA_FP_DEREF:
	case CFA_SP_DEREF:
		if (read_word(w, copied, &value, (rule->cfa_kind == CFA_FP_DEREF ? w->bp : w->sp) + off))
			return no_cfa(w, END_READ_FAULT);
		return value + rule->cfa_reg;
	case CFA_REG:
		if (register_value(w, copied, rule->cfa_reg, &value))
			return no_cfa(w, END_REGISTER_LOST);
		return value + off;
	case CFA_CLONE:
		if (register_value(w, copied, SYSTEM_CALL_RESULT, &value))
			return no_cfa(w, END_REGISTER_LOST);
		return value ? w->sp + off : no_cfa(w, END_COMPLETE);
	case CFA_END:
		return no_cfa(w, END_COMPLETE);
	case CFA_NONE:
		return no_cfa(w, END_NO_ROWS);
	}
	return no_cfa(w, END_UNSUPPORTED_RULE);
}

/* The caller's frame pointer, by enum fp_kind. */
static __always_inline u32 find_frame_pointer(struct walk *w, int copied, const struct rule *rule, u64 cfa, u64 *bp)
{
	*bp = w->bp;
	if (rule->fp_kind == FP_UNDEFINED)
		*bp = 0; /* a rule that needs it will end as "no progress" */
	else if (rule->fp_kind != FP_SAME &&
		 read_word(w, copied, bp, (rule->fp_kind == FP_AT_CFA ? cfa : w->bp) + rule->fp_off))
		return stop(w, END_READ_FAULT);
	return 0;
}

/* The return address, by enum ra_kind. */
static __always_inline u32 find_return_address(struct walk *w, int copied, const struct rule *rule, u64 cfa, u64 *ip)
{
	switch (rule->ra_kind) {
	case RA_AT_CFA:
		return read_word(w, copied, ip, cfa + rule->ra_off) ? stop(w, END_READ_FAULT) : 0;
	case RA_IN_LINK:
		*ip = w->link;
		return 0;
	}
	if (register_value(w, copied, rule->cfa_reg, ip))
		return stop(w, END_REGISTER_LOST);
	if (rule->ra_kind == RA_AT_REGISTER && READ_USER(copied, ip, 8, *ip + rule->ra_off))
		return stop(w, END_READ_FAULT);
	return 0;
}

/* The caller's registers of a frame that has a CFA. */
static __always_inline u32 leave_frame(struct walk *w, int copied, const struct rule *rule)
{
	u64 cfa, pair[2];

	w->ending = END_READ_FAULT; /* if registers of the target make the CFA NO_CFA: no memory is above it */
	cfa = find_cfa(w, copied, rule);
	cfa = FORGET(w, cfa);
	if (cfa == NO_CFA)
		return 1;
	w->ending = END_DEPTH_LIMIT; /* if no further step is taken */
	/* A function that has not touched its stack yet has the CFA in sp where calls push nothing. */
	if ((cfa < w->sp && rule->cfa_kind != CFA_OTHER_STACK) ||
	    (cfa == w->sp && rule->ra_kind == RA_AT_CFA))
		return stop(w, END_NO_PROGRESS);
	if (rule->bx_kind == BX_LOST)
		w->bx_at = BX_UNAVAILABLE;
	else if (rule->bx_kind == BX_AT_FP)
		w->bx_at = w->bp + rule->bx_off;
	else if (rule->bx_off)
		w->bx_at = cfa + rule->bx_off;
	if (rule->ra_kind == RA_IN_LINK && !w->link) /* what begins a program has no caller */
		return stop(w, w->depth == 1 ? END_COMPLETE : END_REGISTER_LOST);
	if (find_frame_pointer(w, copied, rule, cfa, &pair[0]) ||
	    find_return_address(w, copied, rule, cfa, &pair[1]))
		return 1;
	w->link = 0;
	w->bp = pair[0];
	w->ip = pair[1];
	w->sp = cfa;
	return 0;
}

/* Whether the return address that was found can be one. */
static __always_inline u32 check_caller(struct walk *w, int copied, const struct rule *rule)
{
	w->ip = CODE_ADDRESS(w->ip);
	if (!copied)
		RESTORE_RETURN_ADDRESS(w);
	w->caller = 1;
	if (w->ip < USER_END && w->ip >= 4096)
		return 0;
	if (rule->cfa_kind == CFA_CHAIN)
		return stop(w, END_BROKEN_CHAIN);
	if (w->ip)
		return stop(w, END_BAD_ADDRESS);
	/* What begins a stack has pushed 0: a context, a fiber, a thread of its own. A guess finds 0 anywhere. */
	return stop(w, rule->guessed ? END_NO_ROWS : END_COMPLETE);
}

/* One step: records the current frame and finds its caller's registers. `rules` are those known, 0 of a copied stack. */
static __always_inline u32 unwind_step(struct walk *w, int copied, struct known_rules *rules)
{
	u64 address = w->ip - w->caller;
	struct known_rule *known = copied ? &w->looked_up : known_at(rules, address);
	const struct rule *rule = &known->rule;
	u32 done;

	if (enter_frame(w, known, address))
		return 1;
	if (rule->cfa_kind == CFA_SIGNAL && (w->caller || !rule->cfa_off))
		return leave_signal_frame(w, copied);
	if (rule->cfa_kind == CFA_CHAIN)
		done = follow_chain(w, copied);
	else if (rule->cfa_kind == CFA_GOROUTINE)
		done = enter_goroutine(w, copied, rule);
	else
		done = leave_frame(w, copied, rule);
	return done ? 1 : check_caller(w, copied, rule);
}

#endif
