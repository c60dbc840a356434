/* ranks: how they meet and part, and what a lost one does. */
#include "serve/engine/ranks_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define CALL_SECONDS 1e9 /* a rank without work waits for as long as there is none */
#define STOP_GRACE_SECONDS 10

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* The settings `group` and `fabric`, from the environment: the launcher's name of the node is one of them. */
static int read_settings(struct ash_ranks *ranks, struct ash_err *err)
{
    const struct ash_opt_binding bindings[] = {{&ash_group_table, &ranks->group_opts},
                                               {&ash_fabric_table, &ranks->fabric_opts}};
    int rc = ash_opts_open(bindings, ASH_COUNT(bindings), &ranks->settings, err);

    if (rc == 0) rc = ash_opts_set_env(ranks->settings, err);
    ranks->group_opts.fabric = &ranks->fabric_opts;
    ranks->group_opts.job_dir = NULL; /* ranks of a server do not come back one by one */
    ranks->group_opts.call_timeout = CALL_SECONDS;
    ranks->group_opts.stop_grace = STOP_GRACE_SECONDS;
    return rc;
}

/* The ranks of this one's stage. */
static int open_stage(struct ash_ranks *ranks, struct ash_err *err)
{
    size_t rank = ash_group_rank(ranks->group);
    int rc;

    if (ranks->parts.stages == 1) return 0;
    rc = ash_group_split(ranks->group, (int64_t)(rank / ranks->parts.tp), (int64_t)rank, &ranks->stage, err);
    return rc < 0 ? rc : ash_axis_link_open(&ranks->stage_link, ranks->stage, &ranks->meter, err);
}

int ash_ranks_open(const struct ash_launch_env *env, const struct ash_slice_parts *parts, size_t per_gpu,
                   struct ash_ranks **ranks_out, struct ash_err *err)
{
    struct ash_ranks *ranks = calloc(1, sizeof(*ranks));
    int rc;

    if (ranks == NULL) return ash_err_set(err, -ENOMEM, "out of memory for ranks");
    ash_meter_open(&ranks->meter);
    pthread_mutex_init(&ranks->adapters_lock, NULL);
    ash_assert(parts->tp * parts->stages == env->size && per_gpu > 0);
    ranks->per_gpu = per_gpu;
    ranks->parts = *parts;
    ranks->memory = &ash_memory_host;
    ranks->capacity = ASH_RANKS_HEAD_WORDS;
    ranks->words = calloc(ASH_RANKS_HEAD_WORDS, sizeof(*ranks->words));
    ranks->was_stopped = calloc(env->size, sizeof(*ranks->was_stopped));
    ranks->outcomes = calloc(env->size, sizeof(*ranks->outcomes));
    rc = ranks->words != NULL && ranks->was_stopped != NULL && ranks->outcomes != NULL
             ? read_settings(ranks, err)
             : ash_err_set(err, -ENOMEM, "out of memory for ranks");
    if (rc == 0) rc = ash_group_open(env, &ranks->group_opts, &ranks->group, err);
    if (rc == 0) rc = ash_axis_link_open(&ranks->link, ranks->group, &ranks->meter, err);
    if (rc == 0) rc = open_stage(ranks, err);
    if (rc < 0) {
        ash_ranks_close(ranks);
        return rc;
    }
    *ranks_out = ranks;
    return 0;
}

size_t ash_ranks_rank(const struct ash_ranks *ranks)
{
    return ranks != NULL ? ash_group_rank(ranks->group) : 0;
}

size_t ash_ranks_size(const struct ash_ranks *ranks)
{
    return ranks != NULL ? ash_group_size(ranks->group) : 1;
}

const struct ash_slice_parts *ash_ranks_parts(const struct ash_ranks *ranks)
{
    return &ranks->parts;
}

struct ash_axis ash_ranks_axis(struct ash_ranks *ranks)
{
    if (ranks == NULL || ranks->parts.tp == 1) return (struct ash_axis){0};
    return ash_axis_link_axis(ranks->stage != NULL ? &ranks->stage_link : &ranks->link, 0);
}

int ash_ranks_pid(const struct ash_ranks *ranks, size_t rank)
{
    ash_assert(rank < ash_group_size(ranks->group));
    return ash_group_get_member(ranks->group, rank).pid;
}

void ash_ranks_close(struct ash_ranks *ranks)
{
    if (ranks == NULL) return;
    if (ranks->link.group != NULL) ash_ranks_send_plain(ranks, ASH_RANKS_END);
    if (ranks->group != NULL) ash_group_set_memory(ranks->group, NULL); /* exec is closed next */
    ash_axis_link_close(&ranks->stage_link);
    ash_group_close(ranks->stage);
    ash_axis_link_close(&ranks->link);
    ash_group_close(ranks->group);
    ash_opts_close(ranks->settings);
    pthread_mutex_destroy(&ranks->adapters_lock);
    free(ranks->adapters);
    free(ranks->outcomes);
    free(ranks->was_stopped);
    free(ranks->words);
    free(ranks);
}

void ash_ranks_send_close(struct ash_ranks *ranks)
{
    ash_ranks_send_plain(ranks, ASH_RANKS_CLOSE);
    ash_ranks_close_page(ranks);
    ash_ranks_close_stages(ranks);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* Has a process of this host been stopped? */
static bool is_stopped(int pid)
{
    char path[64], state = '?';
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "r");
    if (file == NULL) return false;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = '?';
    fclose(file);
    return state == 'T' || state == 't';
}

int ash_ranks_watch(struct ash_ranks *ranks, struct ash_err *err)
{
    const char *host = ranks != NULL ? ash_group_get_member(ranks->group, 0).host : NULL;
    char why[ASH_ERR_TEXT_BYTES];

    for (size_t r = 1; r < ash_ranks_size(ranks); r++) {
        struct ash_group_member member = ash_group_get_member(ranks->group, r);
        bool is_now = strcmp(member.host, host) == 0 && is_stopped(member.pid);

        if (is_now && ranks->was_stopped[r]) {
            snprintf(why, sizeof(why), "rank %zu (process %d) is stopped: it computes nothing", r, member.pid);
            ash_group_abort(ranks->group, why);
        }
        ranks->was_stopped[r] = is_now;
    }
    return ranks != NULL ? ash_group_check(ranks->group, err) : 0;
}

void ash_ranks_fail(struct ash_ranks *ranks, const struct ash_err *why)
{
    char text[ASH_ERR_TEXT_BYTES + 32];

    snprintf(text, sizeof(text), "rank %zu: %s", ash_ranks_rank(ranks), why->text);
    ash_group_abort(ranks->group, text);
}
