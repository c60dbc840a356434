/* The thread of an agent, and the calls of its owner. One lock covers the machine: calls are short, and the thread
 * holds it except while it waits for the network. */
#include "collective/member/membership_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/thread.h"

#define HEARTBEAT_NS 100000000ull
#define RETRY_NS 10000000ull
#define SLICE_NS 100000000ull /* between checks for stop requests */
/* Ranks that are told to stop while the next epoch is formed form it first: a collective save needs all ranks. It is
 * formed within silences; a longer wait than this has no peer. */
#define REFORM_GRACE_NS 20000000000ull
#define FLUSH_S 1.0 /* for the last words of a process that ends, to hosts that answer */

static void post(void *ctx, uint64_t to, const struct ash_member_msg *msg)
{
    ash_membership_post(ctx, to, msg);
}

/* Why an epoch is over, in words. */
static void explain(const struct ash_member_event *event, size_t rank, char *why, size_t why_bytes)
{
    const struct ash_membership_address *lost = event->view->cards != NULL ? ash_view_card(event->view, rank) : NULL;
    char name[128];

    ash_assert(rank < event->view->size);
    snprintf(name, sizeof(name), "rank %zu (host %.60s, process %d)", rank, lost != NULL ? lost->host : "?",
             lost != NULL ? (int)lost->pid : 0);
    if (event->why != NULL)
        snprintf(why, why_bytes, "%s", event->why);
    else if (event->loss == ASH_MEMBER_DIED)
        snprintf(why, why_bytes, "%s has died: its connection is gone", name);
    else if (event->loss == ASH_MEMBER_SILENT && event->silent_s > 0)
        snprintf(why, why_bytes, "%s has been silent for %.1f s", name, event->silent_s);
    else if (event->loss == ASH_MEMBER_SILENT)
        snprintf(why, why_bytes, "%s has been silent for too long", name);
    else
        snprintf(why, why_bytes, "the group is formed again");
}

static void on_over(struct ash_membership *agent, const struct ash_member_event *event)
{
    size_t rank = ash_view_find(event->view, event->subject);
    char why[ASH_ERR_TEXT_BYTES];

    agent->is_over = true;
    if (rank == SIZE_MAX) rank = event->rank;
    explain(event, rank, why, sizeof(why));
    if (agent->opts.on_over != NULL && agent->opts.ctx != NULL)
        agent->opts.on_over(agent->opts.ctx, rank, event->code < 0 ? event->code : -ECONNRESET, why);
}

/* The first rank also listens at the job's address, for joiners that know no other. */
static void open_door(struct ash_membership *agent, bool is_first)
{
    agent->wants_door = is_first && agent->opts.port > 0;
    if (agent->wants_door && agent->door_fd < 0)
        agent->door_fd = ash_socket_listen(ash_socket_job_host(agent->host), agent->opts.port, NULL);
    if (!is_first && agent->door_fd >= 0) {
        close(agent->door_fd);
        agent->door_fd = -1;
    }
}

uint64_t ash_membership_try_door(struct ash_membership *agent, uint64_t now_ns)
{
    if (agent->wants_door || ash_member_is_coordinator(agent->member)) open_door(agent, true);
    return agent->wants_door && agent->door_fd < 0 ? now_ns + RETRY_NS : UINT64_MAX;
}

static void on_event(void *ctx, const struct ash_member_event *event)
{
    struct ash_membership *agent = ctx;

    if (event->kind == ASH_MEMBER_EVENT_OVER) on_over(agent, event);
    if (event->kind == ASH_MEMBER_EVENT_NEWS && ash_member_is_coordinator(agent->member)) open_door(agent, true);
    if (event->kind == ASH_MEMBER_EVENT_STARTED) {
        agent->is_started = true;
        agent->is_over = false;
        ash_membership_learn_view(agent, event->view);
        open_door(agent, event->rank == 0);
        if (event->rank == 0) ash_membership_write_contacts(agent, event->view);
    }
    if (event->kind == ASH_MEMBER_EVENT_ENDED) {
        agent->is_ended = agent->is_over = true;
        agent->end_code = event->code;
        snprintf(agent->end_why, sizeof(agent->end_why), "%s",
                 event->why != NULL ? event->why
                                    : "the job went on without this process, which was silent for too long");
    }
    pthread_cond_broadcast(&agent->changed);
}

static void *membership_main(void *arg)
{
    struct ash_membership *agent = arg;
    uint64_t flush_until_ns = 0;

    pthread_mutex_lock(&agent->lock);
    for (;;) {
        uint64_t now_ns = ash_clock_ns();

        if (agent->stop && flush_until_ns == 0) {
            ash_member_say_bye(agent->member);
            flush_until_ns = ash_deadline_in(FLUSH_S);
        }
        if (agent->stop && (!ash_membership_has_output(agent) || now_ns >= flush_until_ns)) break;
        if (!agent->stop) ash_member_tick(agent->member, now_ns);
        ash_membership_serve(agent, agent->stop ? flush_until_ns : ash_member_next_ns(agent->member));
    }
    pthread_mutex_unlock(&agent->lock);
    return NULL;
}

static void wake(struct ash_membership *agent)
{
    uint64_t one = 1;

    if (write(agent->wake_fd, &one, sizeof(one)) < 0) return; /* it has been called already */
}

/* The machine and the thread that runs it. */
static int start_machine(struct ash_membership *agent, struct ash_member_opts *machine)
{
    int rc;

    agent->ops = (struct ash_member_ops){
        .send = post, .event = on_event, .decide = agent->job_dir != NULL ? ash_membership_decide : NULL};
    machine->ops = &agent->ops;
    machine->ctx = agent;
    agent->member = ash_member_open(machine, ash_clock_ns());
    if (agent->member == NULL) return -ENOMEM;
    agent->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (agent->wake_fd < 0) return -errno;
    rc = ash_thread_start(&agent->thread, membership_main, agent);
    agent->has_thread = rc == 0;
    return rc;
}

int ash_membership_open(const struct ash_membership_opts *opts, struct ash_membership **agent_out, struct ash_err *err)
{
    struct ash_membership *agent = calloc(1, sizeof(*agent));
    struct ash_member_opts machine = {.id = opts->id,
                                      .card_bytes = opts->card_bytes,
                                      .heartbeat_ns = HEARTBEAT_NS,
                                      .silent_ns = (uint64_t)(opts->silent_s * 1e9),
                                      .retry_ns = RETRY_NS,
                                      .yield_ns = (uint64_t)(opts->silent_s * 1e9),
                                      .trusts_deaths = opts->job_dir == NULL,
                                      .ready_ns = (uint64_t)(opts->ready_s * 1e9)};
    int rc = -ENOMEM;

    ash_assert(opts->card_bytes >= sizeof(struct ash_membership_address));
    if (agent == NULL) return ash_err_set(err, -ENOMEM, "out of memory to watch the other ranks");
    agent->opts = *opts;
    agent->wake_fd = agent->door_fd = -1;
    pthread_mutex_init(&agent->lock, NULL);
    ash_cond_init(&agent->changed);
    snprintf(agent->host, sizeof(agent->host), "%s", opts->host != NULL ? opts->host : "127.0.0.1");
    if (opts->job_dir != NULL && (agent->job_dir = strdup(opts->job_dir)) == NULL) goto fail;
    rc = ash_membership_read_key(agent, err);
    if (rc < 0) goto fail;
    rc = start_machine(agent, &machine);
    if (rc < 0) {
        ash_err_set(err, rc, "cannot watch the other ranks: %s", strerror(-rc));
        goto fail;
    }
    *agent_out = agent;
    return 0;

fail:
    ash_membership_close(agent);
    return rc;
}

void ash_membership_close(struct ash_membership *agent)
{
    if (agent == NULL) return;
    if (agent->has_thread) {
        pthread_mutex_lock(&agent->lock);
        agent->stop = true;
        pthread_mutex_unlock(&agent->lock);
        wake(agent);
        pthread_join(agent->thread, NULL);
    }
    ash_membership_hang_up(agent);
    ash_member_close(agent->member);
    if (agent->wake_fd >= 0) close(agent->wake_fd);
    if (agent->door_fd >= 0) close(agent->door_fd);
    pthread_cond_destroy(&agent->changed);
    pthread_mutex_destroy(&agent->lock);
    free(agent->job_dir);
    free(agent);
}

bool ash_membership_set_owner(struct ash_membership *agent, void *ctx)
{
    bool is_over;

    pthread_mutex_lock(&agent->lock);
    agent->opts.ctx = ctx;
    is_over = agent->is_over;
    pthread_mutex_unlock(&agent->lock);
    return is_over;
}

void ash_membership_begin(struct ash_membership *agent, struct ash_view *view)
{
    pthread_mutex_lock(&agent->lock);
    ash_member_begin(agent->member, view, ash_clock_ns());
    ash_view_put(view);
    pthread_mutex_unlock(&agent->lock);
    wake(agent);
}

/* Until a view starts or this process is in none, or the time is over; grace_ns after a request to stop. Called and
 * returns with the lock held. */
static int wait_view(struct ash_membership *agent, double timeout_s, uint64_t grace_ns, struct ash_view **view_out,
                     struct ash_err *err)
{
    uint64_t deadline_ns = timeout_s > 0 ? ash_deadline_in(timeout_s) : UINT64_MAX;

    while (!agent->is_started && !agent->is_ended) {
        struct timespec until = ash_cond_deadline(SLICE_NS);

        if (ash_clock_ns() >= deadline_ns)
            return ash_err_set(err, -ETIMEDOUT, "the job has given this process no place within %.0f s", timeout_s);
        if (ash_interrupt_ends_wait(grace_ns))
            return ash_err_set(err, -EINTR, "told to stop while the next epoch was formed");
        pthread_cond_timedwait(&agent->changed, &agent->lock, &until);
    }
    if (!agent->is_started) {
        *view_out = NULL;
        return agent->end_code < 0 ? ash_err_set(err, agent->end_code, "%s", agent->end_why) : 0;
    }
    *view_out = ash_member_view(agent->member);
    (*view_out)->refs++;
    return 0;
}

int ash_membership_join(struct ash_membership *agent, const void *card, double timeout_s, struct ash_view **view_out,
                        struct ash_err *err)
{
    int rc;

    pthread_mutex_lock(&agent->lock);
    rc = ash_member_join(agent->member, card, ash_clock_ns());
    wake(agent);
    if (rc == 0) rc = wait_view(agent, timeout_s, 0, view_out, err);
    pthread_mutex_unlock(&agent->lock);
    return rc;
}

int ash_membership_reform(struct ash_membership *agent, const struct ash_member_terms *terms,
                          struct ash_view **view_out, struct ash_err *err)
{
    int rc;

    pthread_mutex_lock(&agent->lock);
    agent->is_started = false;
    rc = agent->is_ended ? 0 : ash_member_reform(agent->member, terms, ash_clock_ns());
    wake(agent);
    if (rc == 0)
        rc = wait_view(agent, 0, REFORM_GRACE_NS, view_out, err);
    else
        ash_err_set(err, rc, "this process is in no epoch");
    pthread_mutex_unlock(&agent->lock);
    return rc;
}

void ash_membership_put_view(struct ash_membership *agent, struct ash_view *view)
{
    pthread_mutex_lock(&agent->lock);
    ash_view_put(view);
    pthread_mutex_unlock(&agent->lock);
}

/* Until the thread has sent all that there is to say, for a moment at most: others shall hear why this process gives up
 * before they see its connections close. */
static void flush(struct ash_membership *agent)
{
    uint64_t until_ns = ash_deadline_in(FLUSH_S);
    bool has_output;

    do {
        pthread_mutex_lock(&agent->lock);
        has_output = ash_membership_has_output(agent);
        pthread_mutex_unlock(&agent->lock);
        if (has_output) poll(NULL, 0, 1);
    } while (has_output && ash_clock_ns() < until_ns);
}

void ash_membership_abort(struct ash_membership *agent, size_t rank, int code, const char *why)
{
    const struct ash_view *view;

    pthread_mutex_lock(&agent->lock);
    view = ash_member_view(agent->member);
    if (view != NULL)
        ash_member_abort(agent->member, view->members[rank < view->size ? rank : 0].id, code, why, ash_clock_ns());
    pthread_mutex_unlock(&agent->lock);
    wake(agent);
    flush(agent);
}

void ash_membership_news(struct ash_membership *agent, size_t *joiners_out, size_t *leavers_out, bool *is_over_out)
{
    pthread_mutex_lock(&agent->lock);
    ash_member_news(agent->member, joiners_out, leavers_out);
    *is_over_out = agent->is_over;
    pthread_mutex_unlock(&agent->lock);
}

void ash_membership_want_leave(struct ash_membership *agent)
{
    pthread_mutex_lock(&agent->lock);
    ash_member_want_leave(agent->member, ash_clock_ns());
    pthread_mutex_unlock(&agent->lock);
    wake(agent);
}
