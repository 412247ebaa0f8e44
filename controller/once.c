/*
 * The command: what is wanted, whether the repository may be served, and the loop in which the runs live. The question to
 * GitHub and the links to the host are under way at the same time; nothing is leased before both have an answer.
 */
#include "controller/once.h"
#include "base/str.h"
#include "cli/options.h"
#include "controller/clock.h"
#include "controller/hosts.h"
#include "controller/place.h"
#include "controller/screen.h"
#include "controller/show.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define TICK_MS 200        /* also: how late a clock that jumped is noticed */
#define GREETING_AT_ONCE 4 /* sshd refuses more that have not logged in yet */
#define GROUPS_MAX 100
#define IDLE_DEFAULT_MS (10 * 60 * 1000ull)
#define JOB_DEFAULT_MS (6 * 3600 * 1000ull)
#define WAIT_DEFAULT_MS (60 * 1000ull)
#define TIME_MAX_MS (3 * 24 * 3600 * 1000ull)

struct once {
	struct plan plan;
	struct run runs[RUN_COUNT_MAX];
	char host[FORWARD_HOST_MAX];
	const char *group; /* NULL: the default one */
	enum { CHECK_ASKING, CHECK_GOOD, CHECK_BAD } check;
	struct error bad;
	struct gh gh;
};

static int signal_pipe[2] = {-1, -1};
static volatile sig_atomic_t interrupts, hangups;

static void on_signal(int number)
{
	int kept = errno;

	if (number == SIGINT)
		interrupts = interrupts + 1;
	else if (number != SIGCHLD)
		hangups = 1;
	(void)!write(signal_pipe[1], "", 1);
	errno = kept;
}

/* What whoever started us wants ignored (nohup, `&` in a script) stays ignored. */
static int catch_signals(struct error *e)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD};
	struct sigaction act = {.sa_handler = on_signal}, before;

	if (pipe(signal_pipe) < 0)
		return error_errno(e, errno, "cannot make a pipe");
	for (int i = 0; i < 2; i++)
		if (fcntl(signal_pipe[i], F_SETFD, FD_CLOEXEC) < 0 || fcntl(signal_pipe[i], F_SETFL, O_NONBLOCK) < 0)
			return error_errno(e, errno, "cannot prepare a pipe");
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (sigaction(numbers[i], NULL, &before) < 0 || ((before.sa_handler != SIG_IGN || numbers[i] == SIGCHLD) &&
									sigaction(numbers[i], &act, NULL) < 0))
			return error_errno(e, errno, "cannot catch signals");
	(void)signal(SIGPIPE, SIG_IGN);
	return 0;
}

static void on_wake(void *userdata, int fd)
{
	char rest[64];

	while (read(fd, rest, sizeof(rest)) > 0)
		;
}

static void refuse(struct once *o, int code, const char *text)
{
	o->check = CHECK_BAD;
	(void)error_set(&o->bad, code, "%s", text);
}

/* GitHub hides a repository from those who may not see it, and gh asks without a token when it has none. */
static void on_who(void *userdata, const struct gh_answer *a)
{
	struct once *o = userdata;
	char text[ERROR_TEXT_MAX];

	if (a->fault == GH_LOGIN) {
		refuse(o, gh_errno(a->fault), a->text);
		return;
	}
	(void)snprintf(text, sizeof(text), "there is no repository %.150s, or the login of gh (%.40s) does not see it", o->plan.scope,
			link_text(a->body, "login"));
	refuse(o, ENOENT, text);
}

static void ask_who(struct once *o)
{
	struct error e = ERROR_INIT;

	if (gh_call(&o->gh, "GET", "user", NULL, on_who, o, &e) < 0)
		refuse(o, e.code, e.text);
}

/*
 * Only a plain true counts, and nothing that says otherwise: doubt is public. What is internal (to an enterprise) is private to GitHub,
 * and here: who may read it are people whom its owner knows.
 */
static bool is_private(const json_t *repository)
{
	const char *visibility = link_text(repository, "visibility");
	bool closed = !json_object_get(repository, "visibility") || str_equal(visibility, "private") || str_equal(visibility, "internal");

	return closed && link_true(repository, "private");
}

static void on_repository(void *userdata, const struct gh_answer *a)
{
	struct once *o = userdata;
	char full_name[SCOPE_MAX], text[ERROR_TEXT_MAX];
	json_t *admin = json_object_get(json_object_get(a->body, "permissions"), "admin");

	if (a->fault == GH_ABSENT) {
		ask_who(o);
	} else if (a->fault != GH_OK) {
		(void)snprintf(text, sizeof(text), "%.150s: %.300s", o->plan.scope, a->text);
		refuse(o, gh_errno(a->fault), text);
	} else if (!is_private(a->body)) {
		(void)snprintf(text, sizeof(text), "%.150s is not private: anybody who can open a pull request there could run code on your "
				"host. Only private repositories are served", o->plan.scope);
		refuse(o, EACCES, text);
	} else if (json_is_false(admin)) {
		(void)snprintf(text, sizeof(text), "%.150s: the login of gh is no administrator there, and only those register runners",
				o->plan.scope);
		refuse(o, EPERM, text);
	} else {
		/* A repository that was renamed answers under its new name. */
		link_shown(a->body, "full_name", full_name, sizeof(full_name));
		if (scope_check(full_name, NULL) == 0)
			(void)str_copy(o->plan.scope, full_name);
		(void)str_format(o->plan.base, "repos/%s", o->plan.scope);
		(void)str_copy(o->plan.repo, o->plan.scope);
		o->check = CHECK_GOOD;
	}
}

static void on_groups(void *userdata, const struct gh_answer *a)
{
	struct once *o = userdata;
	json_t *group, *found = NULL;
	char text[ERROR_TEXT_MAX];
	size_t i;

	if (a->fault != GH_OK) {
		(void)snprintf(text, sizeof(text), "%.50s: %.400s", o->plan.scope, a->text);
		refuse(o, gh_errno(a->fault), text);
		return;
	}
	json_array_foreach(json_object_get(a->body, "runner_groups"), i, group)
		if (o->group ? str_equal(link_text(group, "name"), o->group) : link_true(group, "default"))
			found = group;
	if (!found) {
		(void)snprintf(text, sizeof(text), "%.50s has no runner group '%.100s'", o->plan.scope, o->group ? o->group : "default");
		refuse(o, ENOENT, text);
	} else if (!json_is_false(json_object_get(found, "allows_public_repositories"))) {
		(void)snprintf(text, sizeof(text), "the runner group '%.100s' of %.50s is open to public repositories: anybody could run code on "
				"your host", link_text(found, "name"), o->plan.scope);
		refuse(o, EACCES, text);
	} else {
		o->plan.group_id = link_number(found, "id", INT64_MAX);
		o->check = CHECK_GOOD;
	}
}

static void ask_github(struct once *o)
{
	struct error e = ERROR_INIT;
	char path[GH_PATH_MAX];
	bool repository = !scope_is_org(o->plan.scope);
	int r = repository ? str_format(path, "repos/%s", o->plan.scope) :
			     str_format(path, "orgs/%s/actions/runner-groups?per_page=%d", o->plan.scope, GROUPS_MAX);

	if (r == 0)
		r = gh_call(&o->gh, "GET", path, NULL, repository ? on_repository : on_groups, o, &e);
	if (r < 0)
		refuse(o, e.code ? e.code : EINVAL, e.text);
}

static void check_over(struct once *o)
{
	for (unsigned i = 0; i < o->plan.count; i++) {
		struct run *r = &o->runs[i];

		if (o->check == CHECK_BAD && r->state < RUN_LEASING) {
			r->leased = false;
			run_end(r, RESULT_NOT_DELIVERED, true, error_exit_status(&o->bad), i ? NULL : o->bad.text);
		} else if (o->check == CHECK_GOOD && r->state == RUN_READY) {
			run_go(r);
		}
	}
}

static void start_some(struct once *o)
{
	unsigned greeting = 0;

	for (unsigned i = 0; i < o->plan.count; i++)
		greeting += o->runs[i].state == RUN_GREETING;
	for (unsigned i = 0; i < o->plan.count && greeting < GREETING_AT_ONCE; i++)
		if (o->runs[i].state == RUN_NEW && o->check != CHECK_BAD) {
			run_start(&o->runs[i]);
			greeting++;
		}
}

static void pass_signals_on(struct once *o)
{
	static sig_atomic_t seen, hung_up;

	for (; seen < interrupts; seen++)
		for (unsigned i = 0; i < o->plan.count; i++)
			run_interrupt(&o->runs[i]);
	/* Nobody is there to wait for a job any more. */
	for (; hangups && hung_up < 2; hung_up++)
		for (unsigned i = 0; i < o->plan.count; i++)
			if (o->runs[i].state != RUN_ENDING)
				run_interrupt(&o->runs[i]);
}

static bool all_done(const struct once *o)
{
	for (unsigned i = 0; i < o->plan.count; i++)
		if (o->runs[i].state != RUN_DONE)
			return false;
	return true;
}

/* Nothing waits for this process any more, so it may wait: for whoever reads, or for somebody who wants it to end. */
static void say_the_rest(void)
{
	sig_atomic_t seen = interrupts;

	while (!screen_wait(TICK_MS) && interrupts == seen && !hangups)
		;
}

/* The job goes on: it is not made for its lines. */
static void say_what_is_lost(void)
{
	static bool said;
	char text[ERROR_TEXT_MAX];

	if (said || !screen_lost())
		return;
	said = true;
	show_clear();
	(void)snprintf(text, sizeof(text), "boxery: cannot write to standard output: %s\n", strerror(screen_lost()));
	screen_add(STDERR_FILENO, text, strlen(text));
}

static void loop(struct once *o)
{
	static struct poller p;

	ask_github(o);
	while (!all_done(o)) {
		start_some(o);
		check_over(o);
		pass_signals_on(o);
		poller_add(&p, signal_pipe[0], POLLIN, on_wake, NULL);
		gh_poll(&o->gh, &p);
		for (unsigned i = 0; i < o->plan.count; i++)
			run_poll(&o->runs[i], &p);
		screen_flush();
		say_what_is_lost();
		if (o->plan.terminal)
			show_spinner(o->runs, o->plan.count);
		poller_wait(&p, TICK_MS);
		gh_tick(&o->gh);
		for (unsigned i = 0; i < o->plan.count; i++)
			run_tick(&o->runs[i]);
	}
	show_clear();
	gh_free(&o->gh);
}

/* GitHub does not tell upper and lower case apart. */
static bool is_of(const char *repository, const char *org)
{
	size_t len = strlen(org);

	return strncasecmp(repository, org, len) == 0 && repository[len] == '/';
}

static int choose_scope(struct once *o, const char *repo, const char *org, struct error *e)
{
	struct place place = {0};
	struct error none = ERROR_INIT;
	int r = 0;

	if (o->group && !org)
		return error_set(e, EINVAL, "--group goes with --org");
	if (repo)
		r = place_of_name(repo, &place, e);
	else if (!org)
		r = place_of_folder(&place, e);
	else if (place_of_folder(&place, &none) == 0 && !is_of(place.scope, org))
		place = (struct place){0}; /* what this folder is of says nothing about that organisation */
	if (r < 0)
		return r;
	/* A remote may be anybody's. A token of the environment goes to whatever host is asked; a login of gh only where it belongs. */
	if (!repo && place.hostname[0] && !getenv("GH_HOST") && (unsetenv("GH_ENTERPRISE_TOKEN") < 0 || unsetenv("GITHUB_ENTERPRISE_TOKEN") < 0))
		return error_errno(e, errno, "cannot leave a token out");
	/* GH_HOST is the person's own choice, and what is said with --repo even more so. */
	if (place.hostname[0] && setenv("GH_HOST", place.hostname, repo != NULL) < 0)
		return error_errno(e, errno, "cannot set GH_HOST");
	o->plan.group_id = 1;
	if (!org)
		return str_copy(o->plan.scope, place.scope);
	if (org_check(org, e) < 0)
		return -e->code;
	(void)str_copy(o->plan.scope, org);
	(void)str_format(o->plan.base, "orgs/%s", org);
	/* In which of its repositories the job runs only a guess can tell; this folder's is a good one. */
	(void)str_copy(o->plan.repo, place.scope);
	return 0;
}

/* As in runners.yaml. What is no text would be left out of the request, and jobs of other labels come then. */
static int take_labels(struct plan *p, const struct option_list *labels, struct error *e)
{
	static_assert(OPTION_LIST_MAX <= RUN_LABELS_MAX, "a label that is given has a place");
	for (size_t i = 0; i < labels->n; i++) {
		const char *label = labels->items[i];

		for (const char *c = label; *c; c++)
			if (*c <= 0x20 || *c >= 0x7f || *c == '"' || *c == '\\')
				return error_set(e, EINVAL, "--label: only printable ASCII without space, quote, backslash");
		p->labels[p->n_labels++] = label;
	}
	return 0;
}

static int status_of(const struct once *o)
{
	for (unsigned i = 0; i < o->plan.count; i++)
		if (run_exit_status(&o->runs[i]) != EXIT_STATUS_OK)
			return run_exit_status(&o->runs[i]);
	return screen_lost() ? EXIT_STATUS_FAILED : EXIT_STATUS_OK;
}

static int fail(const struct error *e)
{
	(void)fprintf(stderr, "%s%s\n", str_starts(e->text, "boxery ") ? "" : "boxery: ", e->text);
	return error_exit_status(e);
}

int once(const char *host, int argc, char **argv)
{
	static struct once o;
	struct plan *p = &o.plan;
	const char *repo = NULL, *org = NULL;
	struct option_list labels = {0};
	uint64_t count = 1;
	struct error e = ERROR_INIT;
	int first, code;

	*p = (struct plan){.pool = "default", .idle_ms = IDLE_DEFAULT_MS, .job_ms = JOB_DEFAULT_MS, .wait_ms = WAIT_DEFAULT_MS};
	const struct cli_option options[] = {
		{"host", OPTION_TEXT, &host, "HOST", "what ssh calls the host; . is this machine (default: as of 'boxery setup')", 0, 0},
		{"repo", OPTION_TEXT, &repo, "OWNER/REPO", "register for it (default: the git remote of this folder)", 0, 0},
		{"org", OPTION_TEXT, &org, "ORG", "register for an organisation", 0, 0},
		{"group", OPTION_TEXT, &o.group, "GROUP", "--org: in this runner group (default: the default one)", 0, 0},
		{"label", OPTION_LIST, &labels, "L[,L...]", "labels (default self-hosted,linux,ARCH,boxery)", 0, 0},
		{"pool", OPTION_TEXT, &p->pool, "POOL", "take a VM of this pool (default \"default\")", 0, 0},
		{"wait", OPTION_DURATION, &p->wait_ms, "TIME", "wait this long for a clean VM (default 1m)", 0, TIME_MAX_MS / 3},
		{"idle-timeout", OPTION_DURATION, &p->idle_ms, "TIME", "end when no job comes for this long (default 10m)", 1000, TIME_MAX_MS},
		{"job-timeout", OPTION_DURATION, &p->job_ms, "TIME", "end a job that takes longer (default 6h)", 1000, TIME_MAX_MS},
		{"count", OPTION_NUMBER, &count, "N", "so many at the same time, each with a VM of its own (default 1)", 1, RUN_COUNT_MAX},
		{"follow", OPTION_FLAG, &p->follow, NULL, "show what the runner prints", 0, 0},
		{"json", OPTION_FLAG, &p->json, NULL, "machine-readable: an object per line", 0, 0},
	};
	const struct cli_usage usage = {"boxery runners once", "",
			"Runs one job of a private repository on a clean VM of the host, registered with your own gh login. The host never sees\n"
			"that login. Exit status: 0 the job succeeded, 10 failed, 11 was cancelled, 12 no job came, 13 it ran too long,\n"
			"14 its VM was lost, 15 GitHub did not confirm how it ended; see boxery(1).",
			options, ARRAY_SIZE(options), 0, 0};

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : fail(&e);
	if (repo && org)
		(void)error_set(&e, EINVAL, "--repo and --org exclude each other");
	link_wipe_memory();
	if (e.code || take_labels(p, &labels, &e) < 0 || name_check(p->pool, "pool name", &e) < 0 || hosts_choose(host, o.host, &e) < 0 ||
			choose_scope(&o, repo, org, &e) < 0 || catch_signals(&e) < 0)
		return fail(&e);
	p->host = o.host;
	p->count = (unsigned)count;
	p->terminal = isatty(STDERR_FILENO) && !p->json;
	p->began_ms = clock_now_ms();
	for (unsigned i = 0; i < p->count; i++)
		run_init(&o.runs[i], p, i + 1);
	loop(&o);
	for (unsigned i = 0; i < p->count; i++)
		run_free(&o.runs[i]);
	say_the_rest();
	say_what_is_lost();
	say_the_rest();
	return status_of(&o);
}
