/*
 * What is set for a pool: limits of each of its VMs, which count from the VM's next start, and reservations.
 *
 * A reservation is about the future: as long as its holder has fewer VMs than are reserved for it, the others must leave it as
 * many READY ones as are missing. A VM is not bound to anybody before it is leased, so any of them will do.
 */
#include "base/str.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static struct pool_row *find(const struct keeper *k, const char *name)
{
	for (size_t i = 0; i < k->n_pools; i++)
		if (str_equal(k->pools[i].name, name))
			return &k->pools[i];
	return NULL;
}

const struct pool_settings *pool_settings(const struct keeper *k, const char *pool)
{
	static const struct pool_settings nothing = {.start = POOL_START_WARM, .standby = POOL_STANDBY_PAUSED};
	const struct pool_row *p = pool[0] ? find(k, pool) : NULL;

	return p ? &p->set : &nothing;
}

struct rows {
	struct pool_row *rows;
	size_t n;
};

static int add_row(void *userdata, const struct pool_row *p)
{
	struct rows *to = userdata;
	struct pool_row *more = reallocarray(to->rows, to->n + 1, sizeof(*more));

	if (!more)
		return -ENOMEM;
	to->rows = more;
	to->rows[to->n++] = *p;
	return 0;
}

/* Made aside: those that are in force stay so when the others cannot be read. */
int pools_load(struct keeper *k, struct error *e)
{
	struct rows fresh = {0};
	int r = store_pool_each(k->store, add_row, &fresh, e);

	if (r < 0) {
		free(fresh.rows);
		return r == -ENOMEM ? error_set(e, ENOMEM, "no memory for the pools") : r;
	}
	free(k->pools);
	k->pools = fresh.rows;
	k->n_pools = fresh.n;
	return 0;
}

static unsigned missing(const struct keeper *k, const char *pool, const char *holder, unsigned reserved)
{
	unsigned has = 0;

	for (size_t i = 0; i < k->n_vms && has < reserved; i++)
		has += state_has_lease(k->vms[i]->row.state) && str_equal(k->vms[i]->row.pool, pool) &&
				str_equal(k->vms[i]->holder, holder);
	return reserved - has;
}

unsigned pool_reserved(const struct keeper *k, const char *pool, const char *holder)
{
	const struct pool_settings *set = pool_settings(k, pool);
	unsigned n = 0;

	if (set->reserve_service && !str_equal(holder, HOLDER_SERVICE))
		n += missing(k, pool, HOLDER_SERVICE, set->reserve_service);
	if (set->reserve_local && !str_equal(holder, HOLDER_ONCE))
		n += missing(k, pool, HOLDER_ONCE, set->reserve_local);
	return n;
}

/* 0: as it is; NONE: nothing is set any more. */
static void take(uint32_t *to, uint32_t wanted)
{
	if (wanted)
		*to = wanted == POOL_SETTING_NONE ? 0 : wanted;
}

static void take_word(uint32_t *to, uint32_t wanted, uint32_t usual)
{
	if (wanted)
		*to = wanted == POOL_SETTING_NONE ? usual : wanted;
}

static int check_range(const char *what, uint32_t value, uint32_t min, uint32_t max, struct error *e)
{
	if (value == 0 || (value >= min && value <= max))
		return 0;
	return error_set(e, EINVAL, "%s %u: %u to %u are possible", what, value, min, max);
}

static int check_settings(const struct pool_settings *set, struct error *e)
{
	uint64_t total = 0;
	int r = check_range("CPUs", set->cpus, 1, KEEPER_CPUS_MAX, e);

	if (r == 0 && set->memory_mib)
		r = host_memory_total_mib(&total, e);
	if (r == 0)
		r = check_range("MiB of memory", set->memory_mib, KEEPER_MEMORY_MIN_MIB,
				total < UINT32_MAX ? (uint32_t)total : UINT32_MAX, e);
	if (r == 0)
		r = check_range("MiB per second of disk", set->disk_mib_per_s, 1, KEEPER_RATE_MAX, e);
	if (r == 0)
		r = check_range("disk operations per second", set->disk_iops, 1, KEEPER_RATE_MAX, e);
	if (r == 0)
		r = check_range("KiB per second of network", set->net_kib_per_s, 1, KEEPER_RATE_MAX, e);
	if (r == 0)
		r = check_range("VMs reserved for " HOLDER_SERVICE, set->reserve_service, 1, STORE_VMS_MAX, e);
	if (r == 0)
		r = check_range("VMs reserved for " HOLDER_ONCE, set->reserve_local, 1, STORE_VMS_MAX, e);
	if (r == 0 && (!pool_start_to_string((enum pool_start)set->start) ||
				      !pool_standby_to_string((enum pool_standby)set->standby)))
		r = error_set(e, EINVAL, "a pool's VMs start warm or cold, and wait paused or running");
	return r;
}

int serve_pool_set(struct request *r, struct error *e)
{
	const struct pool_settings *in = &r->in->settings;
	struct pool_row row = {0};
	int code;

	(void)str_copy(row.name, r->in->pool[0] ? r->in->pool : POOL_DEFAULT);
	row.set = *pool_settings(r->k, row.name);
	take(&row.set.cpus, in->cpus);
	take(&row.set.memory_mib, in->memory_mib);
	take(&row.set.disk_mib_per_s, in->disk_mib_per_s);
	take(&row.set.disk_iops, in->disk_iops);
	take(&row.set.net_kib_per_s, in->net_kib_per_s);
	take(&row.set.reserve_service, in->reserve_service);
	take(&row.set.reserve_local, in->reserve_local);
	take_word(&row.set.start, in->start, POOL_START_WARM);
	take_word(&row.set.standby, in->standby, POOL_STANDBY_PAUSED);
	code = check_settings(&row.set, e);
	if (code == 0 && r->k->n_pools >= KEEPER_POOLS_MAX && !find(r->k, row.name))
		code = error_set(e, ENOSPC, "%d pools have settings already, which is the limit", KEEPER_POOLS_MAX);
	if (code == 0)
		code = store_pool_put(r->k->store, &row, e);
	if (code == 0)
		code = pools_load(r->k, e);
	if (code == 0) {
		log_info("pool %s: starts %s, waits %s, cpus %u, memory %u MiB, disk %u MiB/s, %u operations/s, network %u KiB/s, "
			 "reserved: service %u, local %u (0: not set)", row.name,
				pool_start_to_string((enum pool_start)row.set.start),
				pool_standby_to_string((enum pool_standby)row.set.standby), row.set.cpus, row.set.memory_mib, row.set.disk_mib_per_s,
				row.set.disk_iops, row.set.net_kib_per_s, row.set.reserve_service, row.set.reserve_local);
		keeper_kick(r->k); /* somebody who waits may have been let through */
	}
	return code;
}

static json_t *pool_json(const struct keeper *k, const char *name)
{
	const struct pool_settings *set = pool_settings(k, name);
	json_int_t n = 0, ready = 0, leased = 0, broken = 0;

	for (size_t i = 0; i < k->n_vms; i++) {
		const struct keeper_vm *v = k->vms[i];

		if (!str_equal(v->row.pool, name))
			continue;
		n++;
		ready += v->row.state == STATE_READY;
		leased += state_has_lease(v->row.state);
		broken += v->row.state == STATE_BROKEN;
	}
	return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:s}", "name", name, "vms", n, "ready", ready, "leased",
			leased, "broken", broken, "cpus", (json_int_t)set->cpus, "memory_mib", (json_int_t)set->memory_mib,
			"disk_mib_per_s", (json_int_t)set->disk_mib_per_s, "disk_iops", (json_int_t)set->disk_iops,
			"net_kib_per_s", (json_int_t)set->net_kib_per_s, "reserve_service", (json_int_t)set->reserve_service,
			"reserve_local", (json_int_t)set->reserve_local, "start", pool_start_to_string((enum pool_start)set->start),
			"standby", pool_standby_to_string((enum pool_standby)set->standby));
}

static bool is_first(const struct keeper *k, size_t vm)
{
	for (size_t i = 0; i < vm; i++)
		if (str_equal(k->vms[i]->row.pool, k->vms[vm]->row.pool))
			return false;
	return !find(k, k->vms[vm]->row.pool);
}

int serve_pools(struct request *r, struct error *e)
{
	json_t *pools = json_array();

	for (size_t i = 0; i < r->k->n_pools; i++)
		(void)json_array_append_new(pools, pool_json(r->k, r->k->pools[i].name));
	for (size_t i = 0; i < r->k->n_vms; i++)
		if (r->k->vms[i]->row.pool[0] && is_first(r->k, i))
			(void)json_array_append_new(pools, pool_json(r->k, r->k->vms[i]->row.pool));
	return list_document(json_pack("{s:o}", "pools", pools), &r->document, e);
}
