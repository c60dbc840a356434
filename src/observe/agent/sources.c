/* One round at a time: every idle collector is started, and the scrape waits until each has answered or timed out.
 * A collector that is still busy from an earlier round is not waited for: it hangs. */
#include "observe/agent/sources.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "observe/collect/exposition.h"

#define SHARE_NS 100000000u /* data younger than that are served again */
#define CLOSE_NS 200000000u

struct reader {
    struct ash_sources *sources;
    const struct ash_collector_ops *ops;
    pthread_t thread;
    bool has_thread;
    /* under the lock of all: */
    uint64_t asked, answered; /* rounds */
    uint64_t answered_ns;     /* when it last succeeded; 0: never */
    bool is_up;
    double seconds;
    struct ash_str text;
    char why[ASH_ERR_TEXT_BYTES];
    bool has_ended;
};

struct ash_sources {
    const struct ash_host_files *source;
    struct reader *readers;
    size_t count;
    pthread_mutex_t lock;
    pthread_cond_t asked, answered;
    uint64_t round, round_ns; /* the last one, and when it was complete */
    size_t pending;           /* collectors of this round that have not answered: the last one wakes us */
    bool is_reading, is_stopping;
};

/* ---- a collector's thread ---------------------------------------------------------------------------------------- */

/* Open if needed, and collect. */
static int read_once(struct reader *reader, void **state, struct ash_str *text, struct ash_err *err)
{
    int rc = *state == NULL ? reader->ops->open(reader->sources->source, state, err) : 0;

    return rc < 0 ? rc : reader->ops->collect(*state, text, err);
}

static void *reader_main(void *arg)
{
    struct reader *reader = arg;
    struct ash_sources *sources = reader->sources;
    void *state = NULL;

    pthread_mutex_lock(&sources->lock);
    for (;;) {
        struct ash_str text = {0};
        struct ash_err err = {0};
        uint64_t round, start_ns;
        int rc;

        while (reader->asked == reader->answered && !sources->is_stopping)
            pthread_cond_wait(&sources->asked, &sources->lock);
        if (sources->is_stopping) break;
        round = reader->asked;
        pthread_mutex_unlock(&sources->lock);
        start_ns = ash_clock_ns();
        rc = read_once(reader, &state, &text, &err);
        pthread_mutex_lock(&sources->lock);
        ash_str_fini(&reader->text);
        reader->text = text;
        ash_assert(reader->answered < round && round <= sources->round); /* rounds only rise */
        reader->answered = round;
        ash_assert(round != sources->round || sources->pending > 0);
        if (round == sources->round) sources->pending--;
        reader->is_up = rc == 0;
        reader->seconds = (double)(ash_clock_ns() - start_ns) * 1e-9;
        if (rc == 0) reader->answered_ns = ash_clock_ns();
        memcpy(reader->why, err.text, sizeof(reader->why));
        if (sources->pending == 0) pthread_cond_broadcast(&sources->answered);
    }
    pthread_mutex_unlock(&sources->lock);
    reader->ops->close(state);
    pthread_mutex_lock(&sources->lock);
    reader->has_ended = true;
    pthread_cond_broadcast(&sources->answered);
    pthread_mutex_unlock(&sources->lock);
    return NULL;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

int ash_sources_open(const struct ash_collector_ops *const *ops, size_t count, const struct ash_host_files *source,
                     struct ash_sources **sources_out, struct ash_err *err)
{
    struct ash_sources *sources = calloc(1, sizeof(*sources));
    int rc = 0;

    if (sources == NULL) return ash_err_set(err, -ENOMEM, "no memory for the collectors");
    pthread_mutex_init(&sources->lock, NULL);
    ash_cond_init(&sources->asked);
    ash_cond_init(&sources->answered);
    sources->source = source;
    sources->readers = calloc(count, sizeof(*sources->readers));
    if (sources->readers == NULL) rc = -ENOMEM;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct reader *reader = &sources->readers[i];

        reader->sources = sources;
        reader->ops = ops[i];
        sources->count = i + 1;
        rc = ash_thread_start(&reader->thread, reader_main, reader);
        reader->has_thread = rc == 0;
    }
    if (rc < 0) goto fail;
    *sources_out = sources;
    return 0;

fail:
    ash_sources_close(sources);
    return ash_err_set(err, rc, "cannot start the collectors: %s", strerror(-rc));
}

/* Have all threads ended? Waits a moment for those that are busy. */
static bool all_ended(struct ash_sources *sources)
{
    struct timespec deadline = ash_cond_deadline(CLOSE_NS);
    bool is_all = false;
    int rc = 0;

    pthread_mutex_lock(&sources->lock);
    sources->is_stopping = true;
    pthread_cond_broadcast(&sources->asked);
    while (!is_all && rc == 0) {
        is_all = true;
        for (size_t i = 0; i < sources->count; i++)
            is_all = is_all && (sources->readers[i].has_ended || !sources->readers[i].has_thread);
        if (!is_all) rc = pthread_cond_timedwait(&sources->answered, &sources->lock, &deadline);
    }
    pthread_mutex_unlock(&sources->lock);
    return is_all;
}

void ash_sources_close(struct ash_sources *sources)
{
    bool is_all;

    if (sources == NULL) return;
    is_all = all_ended(sources);
    for (size_t i = 0; i < sources->count; i++) {
        struct reader *reader = &sources->readers[i];
        bool has_ended;

        pthread_mutex_lock(&sources->lock);
        has_ended = reader->has_ended;
        pthread_mutex_unlock(&sources->lock);
        if (reader->has_thread && has_ended) pthread_join(reader->thread, NULL);
        if (reader->has_thread && !has_ended) pthread_detach(reader->thread);
        if (has_ended) ash_str_fini(&reader->text);
    }
    if (!is_all) return; /* a thread that hangs still holds the rest */
    free(sources->readers);
    pthread_cond_destroy(&sources->asked);
    pthread_cond_destroy(&sources->answered);
    pthread_mutex_destroy(&sources->lock);
    free(sources);
}

/* ---- a scrape ---------------------------------------------------------------------------------------------------- */

/* When a collector that has not answered runs out of time, the next of them, since the round began; 0: none is left. */
static uint64_t next_limit_ns(const struct ash_sources *sources, uint64_t spent_ns)
{
    uint64_t next_ns = 0;

    for (size_t i = 0; i < sources->count; i++) {
        const struct reader *reader = &sources->readers[i];
        uint64_t limit_ns = (uint64_t)(reader->ops->deadline_s * 1e9);

        if (reader->asked != sources->round || reader->answered == sources->round || limit_ns <= spent_ns) continue;
        if (next_ns == 0 || limit_ns < next_ns) next_ns = limit_ns;
    }
    return next_ns;
}

/* Start every idle collector and wait for each, up to its deadline. The lock is held. */
static void run_round(struct ash_sources *sources)
{
    uint64_t round = ++sources->round, start_ns = ash_clock_ns();

    sources->pending = 0;
    for (size_t i = 0; i < sources->count; i++) {
        struct reader *reader = &sources->readers[i];

        if (reader->asked != reader->answered) continue;
        reader->asked = round;
        sources->pending++;
    }
    pthread_cond_broadcast(&sources->asked);
    while (!sources->is_stopping) {
        uint64_t spent_ns = ash_clock_ns() - start_ns, limit_ns = next_limit_ns(sources, spent_ns);
        struct timespec deadline;

        if (limit_ns == 0) break;
        deadline = ash_cond_deadline(limit_ns - spent_ns);
        pthread_cond_timedwait(&sources->answered, &sources->lock, &deadline);
    }
    sources->round_ns = ash_clock_ns();
}

static bool is_fresh(const struct ash_sources *sources, const struct reader *reader)
{
    return reader->is_up && reader->answered == reader->asked && reader->answered == sources->round;
}

static void write_states(const struct ash_sources *sources, struct ash_str *out)
{
    uint64_t now_ns = ash_clock_ns();
    char labels[96];

    ash_exp_family(out, "ashlar_collector_up", "gauge", "Whether the source was read for this scrape.");
    for (size_t i = 0; i < sources->count; i++) {
        ash_exp_labels(labels, sizeof(labels), "collector", sources->readers[i].ops->name, (char *)NULL);
        ash_exp_value(out, "ashlar_collector_up", labels, is_fresh(sources, &sources->readers[i]));
    }
    ash_exp_family(out, "ashlar_collector_age_seconds", "gauge", "Time since the source was last read.");
    for (size_t i = 0; i < sources->count; i++) {
        const struct reader *reader = &sources->readers[i];

        if (reader->answered_ns == 0) continue;
        ash_exp_labels(labels, sizeof(labels), "collector", reader->ops->name, (char *)NULL);
        ash_exp_value(out, "ashlar_collector_age_seconds", labels, (double)(now_ns - reader->answered_ns) * 1e-9);
    }
    ash_exp_family(out, "ashlar_collector_seconds", "gauge", "How long reading the source took.");
    for (size_t i = 0; i < sources->count; i++) {
        const struct reader *reader = &sources->readers[i];

        if (!is_fresh(sources, reader)) continue;
        ash_exp_labels(labels, sizeof(labels), "collector", reader->ops->name, (char *)NULL);
        ash_exp_value(out, "ashlar_collector_seconds", labels, reader->seconds);
    }
}

int ash_sources_scrape(struct ash_sources *sources, struct ash_str *out)
{
    int rc = 0;

    pthread_mutex_lock(&sources->lock);
    while (sources->is_reading && !sources->is_stopping)
        pthread_cond_wait(&sources->answered, &sources->lock);
    if (sources->round == 0 || ash_clock_ns() - sources->round_ns > SHARE_NS) {
        sources->is_reading = true;
        run_round(sources);
        sources->is_reading = false;
        pthread_cond_broadcast(&sources->answered);
    }
    for (size_t i = 0; i < sources->count && rc == 0; i++)
        if (is_fresh(sources, &sources->readers[i]) && sources->readers[i].text.size_bytes > 0)
            rc = ash_str_add(out, sources->readers[i].text.data, sources->readers[i].text.size_bytes);
    if (rc == 0) write_states(sources, out);
    pthread_mutex_unlock(&sources->lock);
    return rc;
}
