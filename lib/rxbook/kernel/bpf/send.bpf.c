// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What the sender runs on each live frame (BPF_PROG_RUN, BPF_F_TEST_XDP_LIVE_FRAMES).
 *
 * A live-frame page starts as the frame given to BPF_PROG_RUN, and comes back from the page pool with all
 * that was written to it on its way: GRO, for one, writes the lengths and checksums of what it merged into
 * the first frame. So every frame gets its headers anew; the payload nobody writes to.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define RING_WORDS 65536 /* frames.RING_WORDS */
#define MAX_WORDS 16     /* 128 bytes: Ethernet, IPv6 in IPv6, and TCP are 114 */
#define MAX_OFFSET 2047
#define MIN_HEADER 42     /* Ethernet, IPv4, UDP */
#define MAX_HEADER 114
#define HEADER_ROOM 120   /* in words of 8 bytes */

const volatile __u32 out_ifindex;

/* Set before a run, through the mapped .bss; mirrored in generators/live_frames.py. */
struct {
	__u64 header[HEADER_ROOM / 8];
	__u32 header_bytes;
	__u32 offset; /* of the first byte that differs between frames */
	__u32 words;  /* 8-byte words from there that differ */
	__u32 end;    /* words in use in the ring: slots * words */
	__u32 next;   /* word at which the next frame's slot starts */
} state;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RING_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} ring SEC(".maps");

/* Words at fixed places are fast, and all that plain UDP over IPv4 needs. Any other header is longer by a
 * multiple of 4 bytes.
 */
static __always_inline int restore_header(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	__u8 *frame = (void *)(long)ctx->data;
	const __u8 *header = (const __u8 *)state.header;
	__u32 rest = state.header_bytes - MIN_HEADER;

	if ((void *)(frame + MIN_HEADER) > end)
		return -1;
#pragma unroll
	for (__u32 i = 0; i < MIN_HEADER / 8; i++)
		((__u64 *)frame)[i] = state.header[i];
	*(__u16 *)(frame + MIN_HEADER - 2) = *(__u16 *)(header + MIN_HEADER - 2);
	frame += MIN_HEADER;
	header += MIN_HEADER;
	for (__u32 i = 0; i < MAX_HEADER - MIN_HEADER; i += 4) {
		if (i >= rest)
			break;
		if ((void *)(frame + 4) > end)
			return -1;
		*(__u32 *)frame = *(__u32 *)(header + i);
		frame += 4;
	}
	return 0;
}

SEC("xdp")
int send_same(struct xdp_md *ctx)
{
	if (restore_header(ctx))
		return XDP_ABORTED;
	return bpf_redirect(out_ifindex, 0);
}

SEC("xdp")
int send_ring(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	__u8 *frame = (void *)(long)ctx->data;
	__u32 offset = state.offset, words = state.words, slot = state.next;

	if (offset > MAX_OFFSET || restore_header(ctx))
		return XDP_ABORTED;
	frame += offset;
	for (__u32 i = 0; i < MAX_WORDS; i++) {
		__u32 at = slot + i;
		__u64 *word;

		if (i >= words)
			break;
		word = bpf_map_lookup_elem(&ring, &at);
		if (!word || (void *)(frame + 8) > end)
			return XDP_ABORTED;
		*(__u64 *)frame = *word;
		frame += 8;
	}
	slot += words;
	state.next = slot < state.end ? slot : 0;
	return bpf_redirect(out_ifindex, 0);
}

/* On the sending device: many drivers set up their queues for redirected frames only while a program is attached. */
SEC("xdp")
int pass_all(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* The bare live-frame loop: the ceiling that benchmarks/ compares a generator with. */
SEC("xdp")
int send_nothing(struct xdp_md *ctx)
{
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
