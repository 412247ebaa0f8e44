/* Prints what boxery-vm hands to libvirt and to nft, for golden files. */
#include "base/cleanup.h"
#include "base/str.h"
#include "vm/domain.h"
#include "vm/filter.h"
#include "vm/guard_rules.h"
#include "vm/network.h"
#include "vm/rate.h"
#include <stdio.h>
#include <string.h>

static int domain(const struct hostconf *conf, bool kvm, bool plain, const char *arch, const char *folder,
	const struct domain_limits *limits, char **ret, struct error *e)
{
	char disk[64], clean[64], base[64], console[64], kernel[64], initrd[64];
	struct slot slot;
	const struct domain_spec spec = {
		.name = "one",
		.net_name = conf->net_name,
		.generation = 7,
		.type = kvm ? "kvm" : "qemu",
		.arch = arch,
		.kvm = kvm,
		.cpus = 2,
		.memory_mib = 2048,
		.kernel = kernel,
		.initrd = initrd,
		.cmdline = "root=/dev/vda rw quiet",
		.layers = {disk, plain ? base : clean, plain ? NULL : base},
		.n_layers = plain ? 2 : 3,
		.limits = limits ? *limits : (struct domain_limits){0},
		.disposable = !plain,
		.console = console,
		.slot = &slot,
		.add_filter = !conf->net_isolation ? NULL
			      : guard_has_jail(conf) ? filter_nft.add_xml
						     : filter_nwfilter.add_xml,
	};

	(void)str_format(disk, "%s/%s/one.qcow2", folder, plain ? "vms" : "run");
	(void)str_format(clean, "%s/images/one@boxery-clean/disk.qcow2", folder);
	(void)str_format(base, "%s/base/debian-12/disk.qcow2", folder);
	(void)str_format(console, "%s/console/one.log", folder);
	(void)str_format(kernel, "%s/base/debian-12/vmlinuz", folder);
	(void)str_format(initrd, "%s/base/debian-12/initrd", folder);
	if (slot_derive(conf, 0, &slot, e) < 0)
		return -e->code;
	return domain_render(&spec, ret, e);
}

int main(int argc, char **argv)
{
	struct hostconf conf = {.net_name = "boxery", .net_subnet = "192.168.130", .net_isolation = true};
	CLEANUP_FREE char *text = NULL;
	struct error e = ERROR_INIT;
	struct slot slot;
	const char *what = argc == 2 ? argv[1] : "";
	int r;

	if (str_equal(what, "domain-qemu"))
		r = domain(&conf, false, false, "x86_64", "/var/lib/boxery", NULL, &text, &e);
	else if (str_equal(what, "domain-kvm"))
		r = domain(&conf, true, false, "x86_64", "/var/lib/boxery", NULL, &text, &e);
	else if (str_equal(what, "domain-plain"))
		r = domain(&conf, true, true, "x86_64", "/var/lib/boxery", NULL, &text, &e);
	else if (str_equal(what, "domain-arm"))
		r = domain(&conf, true, false, "aarch64", "/var/lib/boxery", NULL, &text, &e);
	else if (str_equal(what, "domain-escaped"))
		r = domain(&conf, false, false, "x86_64", "/srv/a'b<c>&\"d\"", NULL, &text, &e);
	else if (str_equal(what, "domain-limits"))
		r = domain(&conf, true, false, "x86_64", "/var/lib/boxery",
			&(struct domain_limits){.disk_mib_per_s = 50, .disk_iops = 1000},
			&text, &e);
	else if (str_equal(what, "domain-nwfilter")) {
		conf.net_filter = NET_FILTER_NWFILTER;
		r = domain(&conf, false, false, "x86_64", "/var/lib/boxery", NULL, &text, &e);
	} else if (str_equal(what, "domain-open")) {
		conf.net_isolation = false;
		r = domain(&conf, false, false, "x86_64", "/var/lib/boxery", NULL, &text, &e);
	} else if (str_equal(what, "network"))
		r = network_render(&conf, &text, &e);
	else if (str_equal(what, "filter"))
		r = nwfilter_render(&conf, &text, &e);
	else if (str_equal(what, "rate"))
		r = slot_derive(&conf, 1, &slot, &e) < 0 ? -1 : rate_render(&slot, 512, &text, &e);
	else if (str_equal(what, "guard"))
		r = guard_render(&conf, &text, &e);
	else if (str_equal(what, "guard-proxy")) {
		(void)str_copy(conf.guest_proxy, "10.1.2.3");
		conf.guest_proxy_port = 3128;
		r = guard_render(&conf, &text, &e);
	} else if (str_equal(what, "guard-nwfilter")) {
		conf.net_filter = NET_FILTER_NWFILTER;
		r = guard_render(&conf, &text, &e);
	}
	else
		r = error_set(&e, EXIT_STATUS_USAGE, "'%s' is not known", what);
	if (r < 0) {
		(void)fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	(void)fputs(text, stdout);
	return 0;
}
