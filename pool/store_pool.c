/* Settings of pools. A pool is a word that VMs carry; only what somebody has set has a row. */
#include "pool/store_internal.h"
#include <errno.h>

#define POOL_COLUMNS                                                                                         \
	"name, cpus, memory_mib, disk_mib_per_s, disk_iops, net_kib_per_s, reserve_service, reserve_local, start, standby"

static const char *start_word(const struct pool_settings *p)
{
	return pool_start_to_string(p->start == POOL_START_COLD ? POOL_START_COLD : POOL_START_WARM);
}

static const char *standby_word(const struct pool_settings *p)
{
	return pool_standby_to_string(p->standby == POOL_STANDBY_RUNNING ? POOL_STANDBY_RUNNING : POOL_STANDBY_PAUSED);
}

static bool is_empty(const struct pool_settings *p)
{
	return (p->cpus | p->memory_mib | p->disk_mib_per_s | p->disk_iops | p->net_kib_per_s | p->reserve_service |
		       p->reserve_local) == 0 &&
	       p->start != POOL_START_COLD && p->standby != POOL_STANDBY_RUNNING;
}

int store_pool_put(struct store *s, const struct pool_row *p, struct error *e)
{
	static const char put_sql[] =
		"INSERT OR REPLACE INTO pools (" POOL_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
	static const char drop_sql[] = "DELETE FROM pools WHERE name = ?1";
	CLEANUP_QUERY struct query q = {0};
	bool empty = is_empty(&p->set);

	int r = name_check(p->name, "pool name", e);
	if (r == 0)
		r = query_start(&q, s, empty ? drop_sql : put_sql, e);
	if (r < 0)
		return r;
	query_text(&q, p->name);
	if (!empty) {
		query_u64(&q, p->set.cpus);
		query_u64(&q, p->set.memory_mib);
		query_u64(&q, p->set.disk_mib_per_s);
		query_u64(&q, p->set.disk_iops);
		query_u64(&q, p->set.net_kib_per_s);
		query_u64(&q, p->set.reserve_service);
		query_u64(&q, p->set.reserve_local);
		query_text(&q, start_word(&p->set));
		query_text(&q, standby_word(&p->set));
	}
	r = query_run(&q, e);
	return r < 0 ? r : 0;
}

static int read_row(struct query *q, void *row, struct error *e)
{
	struct pool_row *p = row;
	char start[8], standby[8];
	enum pool_start how = POOL_START_WARM;
	enum pool_standby waits = POOL_STANDBY_PAUSED;

	*p = (struct pool_row){0};
	query_get_text(q, p->name, sizeof(p->name));
	p->set.cpus = (uint32_t)query_get_u64(q);
	p->set.memory_mib = (uint32_t)query_get_u64(q);
	p->set.disk_mib_per_s = (uint32_t)query_get_u64(q);
	p->set.disk_iops = (uint32_t)query_get_u64(q);
	p->set.net_kib_per_s = (uint32_t)query_get_u64(q);
	p->set.reserve_service = (uint32_t)query_get_u64(q);
	p->set.reserve_local = (uint32_t)query_get_u64(q);
	query_get_text(q, start, sizeof(start));
	query_get_text(q, standby, sizeof(standby));
	if (pool_start_from_string(start, &how) < 0 || pool_standby_from_string(standby, &waits) < 0)
		q->rc = SQLITE_CORRUPT;
	p->set.start = how;
	p->set.standby = waits;
	return query_row(q, e);
}

int store_pool_each(
	struct store *s, int (*cb)(void *userdata, const struct pool_row *p), void *userdata, struct error *e)
{
	static const char sql[] = "SELECT " POOL_COLUMNS " FROM pools ORDER BY name";
	struct rows rows = {.size = sizeof(struct pool_row)};
	CLEANUP_FREE struct pool_row *row = NULL;
	int r;
	{
		CLEANUP_QUERY struct query q = {0};
		r = query_start(&q, s, sql, e);
		if (r == 0)
			r = query_gather(&q, read_row, &rows, e);
	}
	row = rows.data;
	for (size_t i = 0; r == 0 && i < rows.n; i++)
		r = cb(userdata, &row[i]);
	return r;
}
