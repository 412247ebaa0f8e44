/* What is asked about is read from the images' manifests, each time anew: an image may have been built since. */
#include "manager/versions.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/table.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "linux/log.h"
#include "manager/alarm.h"
#include "manager/service.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define IMAGES_MAX 32
#define LOOK_MS (24 * 3600 * 1000)
#define AGAIN_MS (3600 * 1000)
#define UNSERVED_MS (60 * 1000) /* until the first entry is served, and whenever none is */
#define FIRST_MS 5000
#define REGISTERS "registers until "
#define RUNS "runs until " /* both: github/answers.h */
#define DATE_MAX 40

struct version {
	char image[VM_NAME_MAX], release[64];
	enum version_state state;
	uint64_t until_s; /* 0: none is set */
	bool asked, told_ends, told_ended; /* asked: in this look */
};

struct versions {
	struct service *service;
	sd_event_source *timer;
	struct version list[IMAGES_MAX], before[IMAGES_MAX]; /* before: while the images are read anew */
	size_t n;
	char asking[64]; /* the release that GitHub is being asked about */
	bool failed;	 /* one could not be asked in this look */
};

static const char *const names[] = {
	[VERSION_UNASKED] = "not asked yet",
	[VERSION_TAKEN] = "taken",
	[VERSION_ENDS] = "ends soon",
	[VERSION_ENDED] = "gets no jobs",
};
_Static_assert(ARRAY_SIZE(names) == VERSION_STATE_COUNT, "table and enum differ");

const char *version_state_to_string(enum version_state v)
{
	return (unsigned)v < VERSION_STATE_COUNT ? names[v] : NULL;
}

/* The time behind these words; 0: there is none. */
static uint64_t date_behind(const char *dates, const char *words)
{
	const char *at = strstr(dates, words);
	char text[DATE_MAX];
	uint64_t when = 0;

	if (!at)
		return 0;
	at += strlen(words);
	if (str_format(text, "%.*s", (int)strcspn(at, ", "), at) == 0)
		(void)clock_wall_parse(text, &when);
	return when;
}

enum version_state versions_judge(const char *dates, uint64_t now_s, uint64_t *ret_until)
{
	uint64_t registers = date_behind(dates, REGISTERS), runs = date_behind(dates, RUNS);
	uint64_t until = !runs || (registers && registers < runs) ? registers : runs;

	*ret_until = until;
	if (runs && runs <= now_s)
		return VERSION_ENDED;
	return until && until <= now_s + VERSIONS_SOON_S ? VERSION_ENDS : VERSION_TAKEN;
}

static int take_line(void *userdata, const char *key, const char *value, struct error *e)
{
	char *release = userdata;

	if (str_equal(key, "RUNNER_VERSION") && str_copy_n(release, sizeof(((struct version *)0)->release), value) < 0)
		return error_set(e, EBADMSG, "RUNNER_VERSION is too long");
	return 0;
}

/* What was known of the same release in the same image is kept. */
static void add_image(struct versions *v, size_t n_before, const char *image)
{
	CLEANUP_FREE char *data = NULL;
	struct version *one = &v->list[v->n];
	char path[sizeof(v->service->host->image_dir) + VM_NAME_MAX + 32];
	size_t len;

	*one = (struct version){.state = VERSION_UNASKED};
	if (str_format(path, "%s/base/%s/manifest.env", v->service->host->image_dir, image) < 0 ||
		file_read(AT_FDCWD, path, ENVFILE_MAX, &data, &len, NULL) < 0 ||
		envfile_parse(path, data, len, take_line, one->release, NULL) < 0 || !one->release[0])
		return;
	(void)str_copy(one->image, image);
	for (size_t i = 0; i < n_before; i++)
		if (str_equal(v->before[i].image, image) && str_equal(v->before[i].release, one->release))
			*one = v->before[i];
	one->asked = false;
	v->n++;
}

static void read_images(struct versions *v)
{
	CLEANUP_DIR DIR *folder = NULL;
	char path[sizeof(v->service->host->image_dir) + 8];
	size_t n_before = v->n;

	(void)str_format(path, "%s/base", v->service->host->image_dir);
	folder = opendir(path);
	if (!folder)
		return;
	memcpy(v->before, v->list, sizeof(v->list));
	v->n = 0;
	for (struct dirent *entry; v->n < IMAGES_MAX && (entry = readdir(folder));)
		if (name_valid(entry->d_name))
			add_image(v, n_before, entry->d_name);
}

static void tell(struct versions *v, struct version *one)
{
	char when[32];

	clock_wall_text(one->until_s * 1000000, when, sizeof(when));
	if (one->state == VERSION_ENDS && !one->told_ends)
		alarm_raise(v->service, ALARM_VERSION, one->image,
			"GitHub takes actions/runner %s in this image until %s only: put a newer release into the layer "
			"github-runner, build an image of another name, and 'boxery-host pool patch' its VMs", one->release, when);
	if (one->state == VERSION_ENDED && !one->told_ended)
		alarm_raise(v->service, ALARM_VERSION, one->image,
			"GitHub gives actions/runner %s in this image no jobs any more: put a newer release into the layer "
			"github-runner, build an image of another name, and 'boxery-host pool patch' its VMs", one->release);
	one->told_ends |= one->state == VERSION_ENDS;
	one->told_ended |= one->state == VERSION_ENDED;
}

static void ask_next(struct versions *v);

static void on_deprecation(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct versions *v = userdata;
	bool known = a->reply->code == 0, absent = a->reply->fault == GITHUB_FAULT_ABSENT;
	uint64_t now_s = service_wall_us(v->service) / 1000000;

	(void)number;
	for (size_t i = 0; i < v->n; i++) {
		struct version *one = &v->list[i];

		if (!str_equal(one->release, v->asking))
			continue;
		one->asked = true;
		if (known || absent) {
			one->state = versions_judge(known ? a->reply->text : "", now_s, &one->until_s);
			tell(v, one);
		}
	}
	if (!known && !absent) {
		log_debug("until when GitHub takes actions/runner %s cannot be asked: %s", v->asking, a->reply->text);
		v->failed = true;
	}
	ask_next(v);
}

static void look_in(struct versions *v, uint64_t in_ms);

static const struct work_entry *served(const struct service *s)
{
	for (unsigned i = 0; i < s->config->n_entries; i++)
		if (s->entries[i].state == ENTRY_SERVING || s->entries[i].state == ENTRY_STOPPED)
			return &s->entries[i];
	return NULL;
}

static void ask_next(struct versions *v)
{
	const struct work_entry *entry = served(v->service);
	struct github_request r = {0};
	struct error e = ERROR_INIT;
	struct version *next = NULL;

	for (size_t i = 0; i < v->n && !next; i++)
		next = v->list[i].asked ? NULL : &v->list[i];
	v->asking[0] = '\0';
	if (!next || !entry) {
		look_in(v, next ? UNSERVED_MS : v->failed ? AGAIN_MS : LOOK_MS);
		return;
	}
	(void)str_copy(r.scope, entry->conf->scope);
	(void)str_copy(r.group, entry->conf->group);
	(void)str_copy(r.text, next->release);
	(void)str_copy(v->asking, next->release);
	if (github_link_ask(v->service->github, GITHUB_DEPRECATION, &r, GITHUB_RANK_CLEAN, on_deprecation, v, 0, &e) < 0)
		look_in(v, AGAIN_MS);
}

static int on_look(sd_event_source *source, uint64_t us, void *userdata)
{
	struct versions *v = userdata;

	if (v->service->stopping)
		return 0;
	if (!served(v->service)) {
		look_in(v, UNSERVED_MS);
		return 0;
	}
	v->failed = false;
	read_images(v);
	ask_next(v);
	return 0;
}

static void look_in(struct versions *v, uint64_t in_ms)
{
	struct error e = ERROR_INIT;

	if (loop_timer(v->service->ev, &v->timer, in_ms, on_look, v, &e) < 0)
		log_error("%s", e.text);
}

json_t *versions_status(const struct versions *v)
{
	json_t *list = json_array();

	for (size_t i = 0; i < v->n; i++) {
		const struct version *one = &v->list[i];
		char until[32] = "";

		if (one->until_s)
			clock_wall_text(one->until_s * 1000000, until, sizeof(until));
		(void)json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s}", "image", one->image, "version", one->release,
			"until", until, "state", version_state_to_string(one->state)));
	}
	return list;
}

int versions_new(struct service *s, struct versions **ret, struct error *e)
{
	struct versions *v = calloc(1, sizeof(*v));

	if (!v)
		return error_errno(e, ENOMEM, "cannot start");
	v->service = s;
	*ret = v;
	return 0;
}

struct versions *versions_free(struct versions *v)
{
	if (!v)
		return NULL;
	(void)sd_event_source_disable_unref(v->timer);
	free(v);
	return NULL;
}

int versions_start(struct versions *v, struct error *e)
{
	return loop_timer(v->service->ev, &v->timer, FIRST_MS, on_look, v, e);
}
