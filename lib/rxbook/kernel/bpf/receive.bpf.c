// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What the receiver attaches to its device, and how it counts. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define CAPTURE_FRAMES 4096
#define CAPTURE_BYTES 2048

const volatile __u32 receiver_cpu;

/* Read and set through the mapped .bss; mirrored in receivers/device.py. */
struct {
	__u64 frames;         /* of which the cpumap kthread made skbs */
	__u32 counted_map_id; /* whose kthread is counted: other cpumaps may exist */
	__u32 captured;
	__u32 capture_limit;
} state;

/* cpumap: every frame goes to another CPU, whose kthread makes the skb and runs GRO. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1024); /* the loader sets the number of CPUs */
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} cpus SEC(".maps");

SEC("xdp")
int to_cpumap(struct xdp_md *ctx)
{
	return bpf_redirect_map(&cpus, receiver_cpu, 0);
}

/* stack: veth's own NAPI makes the skb. A program that passes keeps NAPI on whatever GRO is set to. */
SEC("xdp")
int to_stack(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("xdp")
int to_nowhere(struct xdp_md *ctx)
{
	return XDP_DROP;
}

/* The first frames as they arrive, before any skb or GRO. */
struct captured {
	__u32 length;
	__u8 bytes[CAPTURE_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CAPTURE_FRAMES);
	__type(key, __u32);
	__type(value, struct captured);
} capture SEC(".maps");

SEC("xdp")
int to_capture(struct xdp_md *ctx)
{
	__u32 length = ctx->data_end - ctx->data;
	__u32 at = state.captured;
	struct captured *slot;

	if (at >= state.capture_limit)
		return XDP_DROP;
	slot = bpf_map_lookup_elem(&capture, &at);
	if (!slot)
		return XDP_DROP;
	/* Changes nothing, as MTU 1500 keeps frames below 2048 bytes, but shows so: the verifier of Linux 6.1
	 * forgets what a comparison showed of a register once it is masked, and takes 0 for possible.
	 */
	asm volatile("" : "+r"(length));
	length = ((length - 1) & (CAPTURE_BYTES - 1)) + 1;
	if (!bpf_xdp_load_bytes(ctx, 0, slot->bytes, length)) {
		slot->length = length;
		state.captured = at + 1;
	}
	return XDP_DROP;
}

/* Counters of the cpumap kthread, added once per batch of at most 8 frames: nothing is paid per packet.
 * One kthread writes them, so no atomics.
 */
SEC("raw_tp/xdp_cpumap_kthread")
int count_kthread(struct bpf_raw_tracepoint_args *ctx)
{
	/* TP_PROTO(int map_id, unsigned int processed, unsigned int drops, int sched, ...) */
	if ((__u32)ctx->args[0] != state.counted_map_id)
		return 0;
	/* processed counts also those for which there was no memory */
	state.frames += (__u32)ctx->args[1] - (__u32)ctx->args[2];
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
