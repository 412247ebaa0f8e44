#ifndef BOXERY_VM_NFT_GENERATION_H
#define BOXERY_VM_NFT_GENERATION_H
/*
 * The kernel counts the changes of its nftables rules, whoever makes them: the number goes up by one with each transaction
 * and never without one. So rules that were looked at once are still the same while the number is, and asking for it is
 * one message to the kernel instead of a listing. It counts within one network namespace and one boot.
 * Source: net/netfilter/nf_tables_api.c, nf_tables_commit() and nf_tables_getgen(); SO_NETNS_COOKIE since Linux 5.14.
 */
#include "base/error.h"
#include "linux/clock.h"
#include <stdbool.h>
#include <stdint.h>

struct nft_generation {
	char boot_id[BOOT_ID_MAX];
	uint64_t netns;
	uint32_t number;
};
int nft_generation_get(struct nft_generation *ret, struct error *e);
bool nft_generation_equal(const struct nft_generation *a, const struct nft_generation *b);

/* A socket that becomes readable when somebody has changed rules; the caller closes it. */
int nft_changes_open(int *ret_fd, struct error *e);
/* Takes what has come. Whether anything has is all it says: messages that were lost count as a change, too. */
void nft_changes_drain(int fd);
#endif
