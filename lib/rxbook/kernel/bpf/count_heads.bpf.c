// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Where the heads of skbs come from on one CPU, the slab or NAPI's cache of freed ones, and how many go back to the slab.
 *
 * Attached in windows of their own: each program costs something for each call that it counts. Tracepoints tell of
 * heads that the slab gives and takes one by one; what it does in bulk, and the cache, are only seen at the kernel's
 * functions. The loader names these, as they differ between kernels (_noprof from 6.10 on), and leaves out those that
 * are not there. Only the one CPU writes the counters, so no atomics.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

struct kmem_cache {
	const char *name;
} __attribute__((preserve_access_index));

const volatile __u32 receiver_cpu;

/* Read through the mapped .bss; mirrored in kernel/skb_heads.py. */
struct {
	__u64 slab_single; /* heads that the slab gave one by one */
	__u64 slab_bulk;   /* in bulk: to NAPI's cache, or past it */
	__u64 cache;       /* that were taken from NAPI's cache, refilled or not */
	__u64 freed_single; /* that went back to the slab, one by one */
	__u64 freed_bulk;
} heads;

static __always_inline int counted_here(void)
{
	return bpf_get_smp_processor_id() == receiver_cpu;
}

static __always_inline int of_skbs(struct kmem_cache *cache)
{
	static const char wanted[] = "skbuff_head_cache";
	char name[sizeof(wanted)] = {};

	const char *address = BPF_CORE_READ(cache, name);

	if (bpf_probe_read_kernel_str(name, sizeof(name), address) < 0)
		return 0;
	for (int i = 0; i < (int)sizeof(wanted); i++)
		if (name[i] != wanted[i])
			return 0;
	return 1;
}

/* Arguments of both tracepoints: call site, object, cache. */
SEC("raw_tp/kmem_cache_alloc")
int alloc_single(struct bpf_raw_tracepoint_args *ctx)
{
	if (counted_here() && of_skbs((struct kmem_cache *)ctx->args[2]))
		heads.slab_single++;
	return 0;
}

SEC("raw_tp/kmem_cache_free")
int free_single(struct bpf_raw_tracepoint_args *ctx)
{
	if (counted_here() && of_skbs((struct kmem_cache *)ctx->args[2]))
		heads.freed_single++;
	return 0;
}

/* It gives all, or none, and returns their number (never above 64 for heads) or, in newer kernels, a bool in 8 bits. */
SEC("fexit/kmem_cache_alloc_bulk")
int BPF_PROG(alloc_bulk, struct kmem_cache *cache, __u32 flags, unsigned long size, void **p, int given)
{
	if (counted_here() && (given & 0xff) && of_skbs(cache))
		heads.slab_bulk += size;
	return 0;
}

SEC("fentry/kmem_cache_free_bulk")
int BPF_PROG(free_bulk, struct kmem_cache *cache, unsigned long size)
{
	if (counted_here() && of_skbs(cache))
		heads.freed_bulk += size;
	return 0;
}

SEC("fentry/napi_skb_cache_get")
int BPF_PROG(cache_single)
{
	if (counted_here())
		heads.cache++;
	return 0;
}

SEC("fexit/napi_skb_cache_get_bulk")
int BPF_PROG(cache_bulk, void **skbs, __u32 n, __u32 given)
{
	if (counted_here())
		heads.cache += given;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
