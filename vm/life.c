/*
 * The beginning of a life, in a guest that has booted or was restored, and the clean check: what comes out is the machine
 * that was captured. From outside: the disk is the chain of files it should be, asked of libvirt and of the files; those of
 * them that are read-only are the ones of the capture; the filter is in force. From inside, over the agent, which is believed
 * because nobody's code has run yet: generation, address, the host key that sshd will use, clock, nothing of an earlier life
 * on its tmpfs, and the listing of the capture line by line.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "vm/agent.h"
#include "vm/filter.h"
#include "vm/listing.h"
#include "vm/start.h"
#include <errno.h>
#include <string.h>

#define BEGIN_TIMEOUT_MS 60000
#define CLOCK_SKEW_MAX_MS 1000
#define CLOCK_SKEW_GOOD_MS 500
/* A boot may leave something that is just ending. */
#define BOOTED_TRIES 10
#define BOOTED_INTERVAL_MS 500

struct begun {
	struct hostkey key;
	struct begin_answer answer;
	uint64_t sent_us, answered_us; /* wall time of ours around the call */
};

static void wipe_buf(struct buf *b)
{
	if (b->data)
		secret_wipe(b->data, b->cap);
	buf_free(b);
}

static void begun_free(struct begun **p)
{
	if (*p)
		hostkey_free(&(*p)->key);
	free(*p);
}

static int begin(struct start *s, struct begun *b, struct error *e)
{
	CLEANUP(wipe_buf) struct buf text = BUF_INIT(BEGIN_TEXT_MAX);
	CLEANUP_FREE char *out = NULL;
	uint64_t left = start_left_ms(s), timeout = left < BEGIN_TIMEOUT_MS ? left : BEGIN_TIMEOUT_MS;
	int r;

	host_step_begin(s->h, "begin");
	/* Its full size at once: a buffer that grows leaves copies of a key behind. */
	text.data = malloc(text.max + 1);
	if (!text.data)
		return error_errno(e, ENOMEM, "begin");
	text.cap = text.max + 1;
	b->sent_us = clock_wall_us();
	r = begin_render(&text, s->q->generation, s->slot.address, s->q->key_line, s->way != START_PLAIN, &b->key, e);
	if (r == 0)
		r = agent_exec(s->domain, BEGIN_PROGRAM, NULL, text.data, text.len, timeout, &out, e);
	b->answered_us = clock_wall_us();
	if (r == 0)
		r = begin_parse(out, &b->answer, e);
	if (r < 0)
		return error_wrap(e, "%s", s->s.name);
	host_step_done(s->h, "kernel %s", b->answer.kernel);
	return 0;
}

/*
 * begin set the clock to the time at which the call was written and read it when it ended, so what it says lies between our
 * own two readings, and the error is at most what is between those. On a busy host that may be much: then it is asked.
 */
static int check_clock(struct start *s, const struct begun *b, uint64_t *ret_skew_ms, struct error *e)
{
	uint64_t guest = b->answer.clock_ns / 1000u, skew;
	int r;

	skew = guest < b->sent_us ? b->sent_us - guest : guest > b->answered_us ? guest - b->answered_us : 0;
	skew = (skew + (b->answered_us - b->sent_us)) / 1000u;
	if (skew >= CLOCK_SKEW_GOOD_MS) {
		r = agent_clock_skew_ms(s->domain, &skew, e);
		if (r == 0 && skew >= CLOCK_SKEW_GOOD_MS && agent_clock_set(s->domain, NULL) == 0)
			r = agent_clock_skew_ms(s->domain, &skew, e);
		if (r < 0)
			return r;
	}
	if (skew >= CLOCK_SKEW_MAX_MS)
		return error_set(
			e, EBADMSG, "the clock of %s is %llu ms off", s->s.name, (unsigned long long)skew);
	*ret_skew_ms = skew;
	return 0;
}

static int check_listing(struct start *s, const char *seen, enum listing_rule rule, struct error *e)
{
	CLEANUP_FREE char *captured = NULL;
	int r = warm_read_listing(&s->warm, &captured, e);

	if (r == 0)
		r = listing_compare(captured, seen, rule, e);
	return r < 0 ? error_wrap(e, "%s", s->s.name) : 0;
}

int life_check_booted(struct start *s, struct error *e)
{
	CLEANUP_FREE char *seen = malloc(BEGIN_SEEN_MAX);
	struct warm_image *w = &s->warm;
	int r;

	if (!seen)
		return error_errno(e, ENOMEM, "%s", s->s.name);
	if (warm_load(s->h, s->s.name, w, NULL) < 0 || !str_equal(w->fact[WARM_CLEAN], s->clean.disk_identity))
		return 0;
	host_step_begin(s->h, "listing");
	for (int i = 0;; i++) {
		r = start_list(s, BEGIN_LIST, BEGIN_TIMEOUT_MS, seen, e);
		if (r < 0)
			return r;
		r = check_listing(s, seen, LISTING_NO_MORE, e);
		if (r == 0 || i == BOOTED_TRIES)
			break;
		host_sleep_ms(BOOTED_INTERVAL_MS);
	}
	if (r == 0)
		host_step_done(s->h, "as at the capture of %.40s", w->fact[WARM_CAPTURED]);
	return r;
}

static int check_inside(struct start *s, const struct begun *b, uint64_t *ret_skew_ms, struct error *e)
{
	const struct begin_answer *a = &b->answer;

	if (a->generation != s->q->generation)
		return error_set(
			e, ESTALE, "%s says its life is %llu", s->s.name, (unsigned long long)a->generation);
	if (!str_equal(a->host_key, b->key.public_line))
		return error_set(
			e, EBADMSG, "%s has another ssh host key than the one it was given", s->s.name);
	if (!str_equal(a->address, s->slot.address))
		return error_set(e, EBADMSG, "%s says its address is %s, not %s", s->s.name, a->address,
			s->slot.address);
	if (a->lease)
		return error_set(e, ESTALE,
			"%s is not clean: something of an earlier life lies under /run/boxery", s->s.name);
	return check_clock(s, b, ret_skew_ms, e);
}

int life_check_outside(struct start *s, struct error *e)
{
	int r = virt_check_devices(s->domain, s->chain, s->n_chain, &s->slot, e);

	if (r == 0 && s->way != START_PLAIN)
		r = clean_check(s->h, clean_name(s->h, &s->s), &s->clean, e);
	if (r == 0 && s->gen.warm_identity[0])
		r = warm_check(s->h, s->s.name, &s->warm, e);
	if (r == 0 && s->h->conf.net_isolation)
		r = filter_active(s->h, &s->slot, e);
	return r;
}

static int check(struct start *s, const struct begun *b, struct error *e)
{
	uint64_t skew;
	int r;

	host_step_begin(s->h, "check");
	r = check_inside(s, b, &skew, e);
	if (r == 0)
		r = life_check_outside(s, e);
	if (r == 0 && s->gen.warm_identity[0]) {
		r = check_listing(s, b->answer.seen, LISTING_SAME, e);
		/* What a memory image gives once, it gives each time. */
		if (r < 0)
			(void)warm_drop(s->h, s->s.name, NULL);
	}
	if (r == 0)
		host_step_done(s->h, "%s, clock within %llu ms", s->way == START_PLAIN ? "own disk" : "clean",
			(unsigned long long)skew);
	return r;
}

static int record(struct start *s, const struct begun *b, struct vm_result *res, struct error *e)
{
	int r;

	s->gen.begun = true;
	s->gen.standby = false;
	s->gen.kvm = s->virt.kvm;
	s->gen.domain_id = virDomainGetID(s->domain);
	(void)str_copy(s->gen.host_key, b->key.public_line);
	r = generation_save(s->h, s->s.name, &s->gen, e);
	if (r < 0)
		return r;
	(void)str_copy(res->host_key, b->key.public_line);
	(void)str_copy(res->address, s->slot.address);
	res->kvm = s->virt.kvm;
	res->warm = s->gen.warm_identity[0] != '\0';
	return 0;
}

int life_begin(struct start *s, struct vm_result *res, struct error *e)
{
	__attribute__((cleanup(begun_free))) struct begun *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return error_errno(e, ENOMEM, "%s", s->s.name);
	r = hostkey_new(&b->key, e);
	if (r == 0 && s->gen.warm_identity[0]) {
		host_step_begin(s->h, "agent");
		r = agent_wait(s->domain, start_left_ms(s), e);
		if (r == 0)
			host_step_done(s->h, "it answers");
	}
	if (r == 0)
		r = begin(s, b, e);
	if (r == 0)
		r = check(s, b, e);
	return r < 0 ? r : record(s, b, res, e);
}
