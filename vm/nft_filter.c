/*
 * The per-guest wall made of nftables only. Its rules are part of the guard (vm/guard_rules.c) and stand for all slots at
 * once, whether their taps exist or not, so that a start has nothing to make and a stop nothing to take away, and a tap
 * is filtered from the moment it has its name. Nothing is learnt from a guest. What is looked at per guest is that its
 * tap is where the rules expect it.
 */
#include "base/cleanup.h"
#include "base/str.h"
#include "vm/filter.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

static int ensure(struct host *h, struct error *e)
{
	(void)h;
	(void)e;
	return 0;
}

static int add_xml(struct buf *b, const struct slot *s)
{
	(void)s;
	return buf_addf(b, "<port isolated='yes'/>\n");
}

static int active(struct host *h, const struct slot *s, struct error *e)
{
	char path[64], master[256], isolated = '\0';
	CLEANUP_FD int fd = -1;
	const char *name;
	ssize_t n;

	(void)h;
	(void)str_format(path, "/sys/class/net/%s/master", s->tap);
	n = readlink(path, master, sizeof(master) - 1);
	master[n < 0 ? 0 : n] = '\0';
	name = strrchr(master, '/');
	if (!name || !str_equal(name + 1, s->bridge))
		return filter_not_active(e, s, "the tap is not on the bridge of the guests; reset the VM");
	(void)str_format(path, "/sys/class/net/%s/brport/isolated", s->tap);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, &isolated, 1) != 1 || isolated != '1')
		return filter_not_active(
			e, s, "the tap is not an isolated port of the bridge; reset the VM");
	return 0;
}

const struct filter_ops filter_nft = {
	.name = "nft",
	.ensure = ensure,
	.add_xml = add_xml,
	.active = active,
};
