/*
 * GitHub's answers as a hostile server would write them: every parser gets the same bytes. Beyond not
 * crashing: a parser that fails leaves its outputs alone and has a sentence, a parser that succeeds gives
 * values that hold what is promised.
 */
#include "fuzz.h"

#include "base/cleanup.h"
#include "base/parse.h"
#include "base/str.h"
#include "github/answers.h"
#include "github/app.h"
#include "github/credential.h"
#include "github/fault.h"
#include "github/http_answer.h"
#include "github/json.h"
#include "jit/jit.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

static void check(int r, const struct error *e)
{
	assert((r < 0) == (e->code != 0));
	assert(r >= 0 || (r == -e->code && e->text[0] != '\0'));
}

static void runners(const char *data, size_t len)
{
	struct answers_runner runner = {.id = 77};
	struct error e = ERROR_INIT;
	bool found = false;

	int r = answers_runner(data, len, &runner, &e);
	check(r, &e);
	assert(runner.id != 0 && (r >= 0 || runner.id == 77));
	error_clear(&e);
	CLEANUP_JSON json_t *array = json_array();
	bool part = false;
	r = answers_runners(data, len, array, &part, &e);
	check(r, &e);
	assert(json_array_size(array) <= ANSWERS_RUNNERS_MAX);
	error_clear(&e);
	r = answers_runner_named(data, len, "boxery-h1-1", &found, &runner, &e);
	check(r, &e);
	assert(r >= 0 || !found);
}

static void mint(const char *data, size_t len)
{
	struct error e = ERROR_INIT;
	uint64_t id = 0;
	CLEANUP_FD int fd = -1;

	int r = answers_mint(data, len, "boxery-h1-1", &id, &fd, &e);
	check(r, &e);
	assert((r < 0) == (fd < 0));
	if (r >= 0)
		assert(id != 0 && jit_fd_check(fd, NULL) == 0);
}

static void jobs(const char *data, size_t len, const char *runner_name)
{
	CLEANUP_JSON json_t *array = json_array();
	struct error e = ERROR_INIT;
	const json_t *job;
	bool full = false;
	size_t i;

	check(answers_jobs(data, len, runner_name, array, &full, &e), &e);
	assert(json_array_size(array) <= ANSWERS_JOBS_MAX);
	json_array_foreach(array, i, job)
	{
		assert(json_id(job, "id") && json_id(job, "run_id") &&
			json_is_array(json_object_get(job, "labels")));
		const char *name = json_text(job, "name");
		assert(!name || strlen(name) <= 200);
		assert(!runner_name || str_equal(json_text(job, "runner_name"), runner_name));
	}
	CLEANUP_FREE char *text = json_dumps(array, JSON_COMPACT); /* what is sent on is still JSON */
	assert(text);
}

static void runs(const char *data, size_t len)
{
	struct answers_runs list = {.n = 0};
	struct error e = ERROR_INIT;
	check(answers_runs(data, len, &list, &e), &e);
	assert(list.n <= ANSWERS_RUNS_MAX);
	for (size_t i = 0; i < list.n; i++)
		assert(list.ids[i] != 0);
}

static void words(const char *data, size_t len)
{
	char text[64], dates[128] = "";
	bool is_private = false;
	struct error e = ERROR_INIT;

	answers_message(data, len, text, sizeof(text));
	assert(str_is_terminated(text, sizeof(text)));
	for (const char *p = text; *p; p++)
		assert(*p >= ' ' && *p <= '~');
	int r = answers_repository(data, len, "o/r", &is_private, &e);
	check(r, &e);
	assert(r >= 0 || !is_private);
	error_clear(&e);
	check(answers_deprecation(data, len, dates, sizeof(dates), &e), &e);
}

static void groups(const char *data, size_t len)
{
	CLEANUP_JSON json_t *names = json_array();
	struct answers_group group = {.id = 77};
	struct error e = ERROR_INIT;
	bool found = false, all_private = true, full = false;
	const json_t *name;
	size_t i;

	int r = answers_group_named(data, len, "few", &found, &group, &e);
	check(r, &e);
	assert(r < 0 || !found || group.id != 0);
	error_clear(&e);
	check(answers_group_repositories(data, len, "acme", names, &all_private, &full, &e), &e);
	assert(json_array_size(names) <= ANSWERS_GROUP_REPOSITORIES_MAX);
	json_array_foreach(names, i, name)
		assert(scope_check(json_string_value(name), NULL) == 0);
}

static void app_token(const char *data, size_t len)
{
	CLEANUP(secret_freep) struct secret *header = NULL;
	struct error e = ERROR_INIT;
	uint64_t seconds = 0;
	int r = app_token_parse(data, len, 1795946400, &header, &seconds, &e);

	check(r, &e);
	assert((r < 0) == !header);
	assert(r < 0 || (seconds > 0 && seconds <= 24 * 3600));
}

/* The same bytes as header lines, and as the body of a refusal. */
static void refusal(const char *data, size_t len)
{
	static const long statuses[] = {0, 200, 301, 401, 403, 404, 409, 422, 429, 500};
	struct http_answer a = {.max = 4096};
	const struct fault_context c = {.what = "repository o/r", .now = 1};

	for (const char *p = data, *end = data + len; p < end;) {
		const char *line = memchr(p, '\n', (size_t)(end - p));
		size_t n = line ? (size_t)(line - p) + 1 : (size_t)(end - p);
		http_answer_header(&a, p, n);
		p += n;
	}
	assert(str_is_terminated(a.permissions, sizeof(a.permissions)) &&
		str_is_terminated(a.etag, sizeof(a.etag)));
	(void)http_answer_body(&a, data, len);
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		struct github_reply reply = {0};
		struct error e = ERROR_INIT;
		a.status = statuses[i];
		int r = fault_from_answer(&c, &a, &reply, &e);
		check(r, &e);
		assert(r < 0 && reply.fault != GITHUB_FAULT_NONE &&
			reply.retry_after_ms <= FAULT_RETRY_MAX_MS);
	}
	http_answer_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	/* A copy of exactly this size, so that a sanitizer sees a byte read too many. */
	char *data = malloc(len ? len : 1);
	assert(data);
	if (len)
		memcpy(data, bytes, len);
	runners(data, len);
	mint(data, len);
	jobs(data, len, NULL);
	jobs(data, len, "boxery-h1-1");
	runs(data, len);
	words(data, len);
	groups(data, len);
	app_token(data, len);
	refusal(data, len);
	(void)jit_check(data, len, NULL);
	free(data);
	return 0;
}
