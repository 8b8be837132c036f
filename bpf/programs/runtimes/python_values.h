/* The CPython of a process, written by user space, and the chain of Python frames of a thread. */
#ifndef HPCD_PYTHON_VALUES_H
#define HPCD_PYTHON_VALUES_H

/* The object on the C stack of an activation of the evaluation loop, and its Python frames. */
enum python_anchor {
	PYTHON_EACH_FRAME = 1,  /* 3.10: a CFrame for each frame */
	PYTHON_ENTRY_FLAG = 2,  /* 3.11: a CFrame for the frames up to one that is an entry */
	PYTHON_ENTRY_FRAME = 3, /* since 3.12: the frame above them, which is no function's */
	PYTHON_COUNTED = 4,     /* 3.9: none. Each activation has one frame: counted from the outermost */
};

/* owner of an entry frame, which represents an activation (3.12 on; 3.14 has a second kind) */
#define PYTHON_OWNED_BY_C 3

/* The CPython of a process: addresses, and where its structures have what, in bytes. */
struct python {
	u64 interpreters; /* address of the pointer to the first interpreter */
	/* Code of the evaluation loop that has linked its CFrame and not written its frame there yet; of PYTHON_COUNTED
	 * all of the loop's code, as frames of a path. */
	u64 unset_begin, unset_end;
	u32 anchor;       /* enum python_anchor */
	u32 next_interpreter, threads; /* in an interpreter */
	u32 next_thread, thread_id, thread_frame; /* in a thread's state */
	u32 thread_cframe; /* 0: there are no CFrames */
	u32 cframe_frame, cframe_previous; /* in a CFrame */
	u32 frame_bytes;  /* what is read of a frame */
	u32 previous, code, instruction, owner; /* in a frame */
	u32 tags;         /* bits of the pointer to the code object that are no address */
	u32 identity;     /* in a code object: addresses of its file, names and line table */
	u32 identity_bytes; /* read from there */
	u32 instructions; /* in a code object: its first instruction; 0: frames have an index, not an address */
	u32 thread_interpreter, interpreter_gil; /* in a thread's state, and in an interpreter: where the next leads to */
	u64 gil;          /* address of the GIL; 0: each interpreter has its own's */
	u64 library;      /* inode of the library that addresses count from until it is placed; 0: they are the process's */
	u32 library_device; /* its file system's */
	u32 version;      /* the minor one: 11 of 3.11 */
	u32 first_line;   /* in a code object */
	u32 name;         /* where the name's address is, counted from identity */
	u32 ascii, compact; /* in a str object: its characters, if they are all ASCII, and else */
};

/* A program's file, as one user's processes run it: CPython is recognised by memory of theirs. */
struct python_program {
	u64 inode; /* of the file */
	u32 device, user; /* of its file system; of its processes */
};

/* struct _gil_runtime_state, 3.9 to 3.15: its pthread_cond_t cond. A thread that waits for the GIL sleeps on one of its words
 * with a timeout. Behind it are a mutex, held for moments, and the condition on which the last holder waits for the next. */
#define GIL_CONDITION 32
#define GIL_CONDITION_BYTES 48

/* A frame is two words in a path: this with the code object's address, and this with POSITION, a hash of the code
 * object's identity and the index of the instruction, in units of two bytes. */
#define FRAME_PYTHON (2ULL << 62)
#define FRAME_PYTHON_POSITION (1ULL << 61)
#define PYTHON_POSITION_BITS 24
#define PYTHON_ADDRESS_MASK ((1ULL << 57) - 1)
#define PYTHON_KIND_SHIFT 61 /* above, of both words */
#define PYTHON_IDENTITY_WORDS 4
#define PYTHON_HASH_FACTOR 0x9e3779b97f4a7c15ULL /* 2^64 by the golden ratio */

/* In a str object, a compact one if the state says so: its characters have 1, 2 or 4 bytes. Released builds, 3.9 to
 * 3.15. */
#define PYTHON_TEXT_LENGTH 16
#define PYTHON_TEXT_STATE 32
#define PYTHON_TEXT_HEAD 40
#define PYTHON_TEXT_WIDTH(state) ((state) >> 2 & 7)
#define PYTHON_TEXT_COMPACT 32
#define PYTHON_TEXT_ASCII 64
/* And in a bytes object: what it holds follows its head. */
#define PYTHON_BYTES_LENGTH 16
#define PYTHON_BYTES_HEAD 32

/* The Python frames of a thread: for each activation of the loop, the innermost first, the address of its object on
 * the C stack, the number of words that follow, and these: its frames, the innermost first. */
#define PYTHON_WORDS 2048
/* In place of the address, where there are no objects: two words follow that are the begin and end of the loop's code,
 * then all frames. */
#define PYTHON_NO_ADDRESS (~0ULL)
#define MOST_PYTHON_FRAMES 8192 /* followed, to the object of the activation they belong to */
#define SENT_PYTHON_WORDS 512 /* with a path that is finished later, at most */
#define SENT_FUNCTIONS 32768 /* that are known to have been sent: of 16 processes at once all */
#define PYTHON_FRAME_WORDS 16 /* read of a frame, at most */
#define PYTHON_STATE_BYTES 1024 /* covers the state of a thread in 3.10 */
#define MOST_PYTHON_STATES 4096 /* looked at for one thread */
#define PYTHON_THREAD_STATES 3 /* of one thread, that are read */
#define MOST_PYTHON_INTERPRETERS 64 /* of one process, in which new states are noticed */

struct python_chain {
	u64 pointer; /* of the thread: the thread_id of its state */
	u64 interpreter, state; /* that are looked at in the search for it */
	u64 several; /* 1: the process has several interpreters, and the thread may have a state in each */
	u64 unbound; /* 1: the search has met a state whose thread does not run yet */
	u64 listed;  /* a hash of each interpreter's first state and the thread of that */
	u64 found[PYTHON_THREAD_STATES]; /* the states that the search has found; 0: none */
	u64 first[PYTHON_THREAD_STATES]; /* the object of the innermost activation of each of the thread's states */
	u64 sp;      /* of the thread */
	u64 innermost; /* address of its instruction; 0: outside of the evaluation loop */
	u64 parts;   /* states that were chosen to be read so far */
	u64 probing; /* 1: the innermost activation is all that is read */
	s64 more;    /* frames than CFrames; then 1: not all have room */
	u64 frame;   /* the next to be read */
	u64 cframe; /* the next CFrame to be read */
	u64 sent;    /* bytes of its functions sent with the present path */
	u64 unsent;  /* 1: some of these, or lines of some, are left to user space */
	u64 woken;   /* when user space was last woken for a new path with such frames */
	u64 last;    /* the object of the last activation: those outside of it have higher addresses */
	u64 bytes[PYTHON_FRAME_WORDS]; /* of the frame that is read */
	u64 identity[PYTHON_IDENTITY_WORDS]; /* of its code object */
	u64 head;    /* of the activation whose frames are read: its place in word[] */
	u64 words;   /* used of word[] */
	u64 word[PYTHON_WORDS]; /* as above */
};

#endif
