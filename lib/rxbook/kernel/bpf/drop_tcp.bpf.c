// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* netfilter drops all TCP of one device, also inside IP-in-IP, as a router that only counts the cost of receiving
 * would. On a host that is reached by SSH, other devices carry TCP that must arrive.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_helpers.h>

#define NF_DROP 0
#define NF_ACCEPT 1

const volatile __u32 in_ifindex;

struct net_device {
	int ifindex;
} __attribute__((preserve_access_index));

struct nf_hook_state {
	struct net_device *in;
} __attribute__((preserve_access_index));

struct sk_buff {
	unsigned char *data;
} __attribute__((preserve_access_index));

struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff *skb;
};

/* The protocol that an IP header of either version carries, and the length of that header; < 0: not IP. */
static __always_inline int carried(const void *header, __u32 *length)
{
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	} ip;

	if (bpf_probe_read_kernel(&ip.v4, sizeof(ip.v4), header))
		return -1;
	if (ip.v4.version == 4) {
		*length = ip.v4.ihl * 4;
		return ip.v4.protocol;
	}
	*length = sizeof(ip.v6);
	return ip.v6.nexthdr; /* within the first 20 bytes */
}

SEC("netfilter")
int drop_tcp(struct bpf_nf_ctx *ctx)
{
	const unsigned char *header = ctx->skb->data;
	__u32 length = 0;
	int protocol;

	if (ctx->state->in->ifindex != in_ifindex)
		return NF_ACCEPT;
	protocol = carried(header, &length);
	if (protocol == IPPROTO_IPIP || protocol == IPPROTO_IPV6)
		protocol = carried(header + length, &length);
	return protocol == IPPROTO_TCP ? NF_DROP : NF_ACCEPT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
