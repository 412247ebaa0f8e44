#ifndef BOXERY_MANAGER_CONFIG_ENTRY_H
#define BOXERY_MANAGER_CONFIG_ENTRY_H
/* Between config.c (the file) and config_entry.c (one entry of `runners`). */
#include "manager/config.h"
#include "manager/config_yaml.h"

#define SECOND_MS UINT64_C(1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS (60 * MINUTE_MS)
#define DAY_MS (24 * HOUR_MS)

struct config_draft { /* the reader's userdata */
	struct runners_config *config;
	bool seen_version, seen_runners;
};
static inline struct config_draft *config_draft_of(struct config_reader *r)
{
	return r->userdata;
}
/* Appends an entry to target, a struct runners_config with room for RUNNERS_ENTRIES_MAX. For config_sequence(). */
int config_entry_read(struct config_reader *r, void *target);
#endif
