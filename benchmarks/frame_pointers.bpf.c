/* The peer: the kernel's frame pointer walk, with hpcd's interning and ring left out. */
#include <uapi/linux/ptrace.h>
#include <uapi/linux/bpf_perf_event.h>

struct frames {
	u64 address[256];
};

BPF_PERCPU_ARRAY(scratch, struct frames, 1);

int frame_pointers(struct bpf_perf_event_data *ctx)
{
	u32 zero = 0;
	struct frames *frames = scratch.lookup(&zero);

	if (frames)
		bpf_get_stack(ctx, frames, sizeof *frames, BPF_F_USER_STACK);
	return 0;
}
