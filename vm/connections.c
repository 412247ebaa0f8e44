/*
 * By netlink, in the two steps that every kernel knows: the whole table is read, and what the guest has begun is deleted, each
 * by all that names it. The program `conntrack` does the same and costs a reset some milliseconds more.
 */
#include "vm/connections.h"
#include "base/str.h"
#include <arpa/inet.h>
#include <errno.h>
#include <libnetfilter_conntrack/libnetfilter_conntrack.h>
#include <stdlib.h>
#include <sys/socket.h>

#define ANSWER_TIMEOUT_S 10
/* The guard allows a guest GUARD_CONNECTIONS_MAX at a time; with those that have ended and linger it is some more. */
#define FOUND_MAX 65536

struct found {
	in_addr_t address;
	struct nf_conntrack **all;
	size_t n, cap;
	int code; /* what the walk through the table could not do */
};

static void found_free(struct found *f)
{
	for (size_t i = 0; i < f->n; i++)
		nfct_destroy(f->all[i]);
	free(f->all);
}

static int grow(struct found *f)
{
	const size_t cap = f->cap ? f->cap * 2 : 64;
	struct nf_conntrack **all = cap > FOUND_MAX ? NULL : reallocarray(f->all, cap, sizeof(struct nf_conntrack *));

	if (!all)
		return cap > FOUND_MAX ? -E2BIG : -ENOMEM;
	f->all = all;
	f->cap = cap;
	return 0;
}

static int on_entry(enum nf_conntrack_msg_type type, struct nf_conntrack *ct, void *userdata)
{
	struct found *f = userdata;

	(void)type;
	if (f->code == 0 && nfct_get_attr_u32(ct, ATTR_ORIG_IPV4_SRC) == f->address) {
		f->code = f->n == f->cap ? grow(f) : 0;
		if (f->code < 0)
			return NFCT_CB_CONTINUE; /* the answer is read to its end all the same */
		f->all[f->n++] = ct;
		return NFCT_CB_STOLEN;
	}
	return NFCT_CB_CONTINUE;
}

static void cleanup_close(struct nfct_handle **h)
{
	if (*h)
		(void)nfct_close(*h);
}

static int find(struct nfct_handle *h, struct found *f)
{
	const struct timeval timeout = {.tv_sec = ANSWER_TIMEOUT_S};
	const uint32_t family = AF_INET;

	if (setsockopt(nfct_fd(h), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
		nfct_callback_register(h, NFCT_T_ALL, on_entry, f) < 0)
		return -errno;
	if (nfct_query(h, NFCT_Q_DUMP, &family) < 0)
		return errno ? -errno : -EIO;
	nfct_callback_unregister(h);
	return f->code;
}

/* One that has ended by itself since is as well. */
static int delete_all(struct nfct_handle *h, const struct found *f)
{
	for (size_t i = 0; i < f->n; i++)
		if (nfct_query(h, NFCT_Q_DESTROY, f->all[i]) < 0 && errno != ENOENT)
			return errno ? -errno : -EIO;
	return 0;
}

int connections_forget(const struct slot *s, struct error *e)
{
	__attribute__((cleanup(cleanup_close))) struct nfct_handle *h = nfct_open(CONNTRACK, 0);
	CLEANUP(found_free) struct found f = {0};
	int r;

	if (!h)
		r = -errno;
	else
		r = inet_pton(AF_INET, s->address, &f.address) == 1 ? find(h, &f) : -EINVAL;
	if (r == 0)
		r = delete_all(h, &f);
	return r < 0 ? error_errno(e, -r, "cannot make the host forget the connections of %s", s->address) : 0;
}
