/* saver: begin and wait; messages between ranks are in saver_agree.c, the thread's work in saver_write.c. */
#include "train/save/saver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/thread.h"
#include "train/save/saver_priv.h"

#define LOOK_NS 20000000u      /* between two looks at the other ranks at the end */
#define WAITING_NS 1000000000u /* between two calls of waiting */
#define PROBE_BYTES 64

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Does every rank see a file that the first one makes in root? */
static int find_shared(struct ash_saver *saver, const char *root, struct ash_err *err)
{
    char name[PROBE_BYTES] = {0}, path[PATH_MAX];
    int32_t seen = 1;
    int rc, fd;

    if (saver->rank == 0) {
        rc = ash_dir_make(root, err);
        if (rc < 0) return rc;
    }
    saver->is_shared = true;
    if (saver->group == NULL || ash_group_nodes(saver->group) == 1) return 0;
    snprintf(name, sizeof(name), ".seen-%ld-%llx", (long)getpid(), (unsigned long long)ash_clock_ns());
    rc = ash_group_broadcast(saver->group, name, sizeof(name), 0, err);
    if (rc < 0) return rc;
    if (ash_path_join(path, sizeof(path), root, name) < 0) return ash_err_set(err, -ENAMETOOLONG, "%s: too long", root);
    if (saver->rank == 0) {
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) close(fd);
    }
    rc = ash_group_barrier(saver->group, err);
    if (rc < 0) return rc;
    seen = ash_path_exists(path);
    rc = ash_group_all_reduce(saver->group, &seen, &seen, 1, ASH_COLL_I32, ASH_COLL_MIN, err);
    if (saver->rank == 0) unlink(path);
    saver->is_shared = seen != 0;
    return rc;
}

int ash_saver_open(const struct ash_saver_opts *opts, struct ash_saver **saver_out, struct ash_err *err)
{
    struct ash_saver *saver = calloc(1, sizeof(*saver));
    struct ash_piece_writer_opts writer = {.memory_bytes = opts->memory_bytes, .wants_uring = true};
    int rc;

    if (saver == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&saver->mutex, NULL);
    rc = ash_cond_init(&saver->changed);
    ash_assert(rc == 0);
    saver->stages = opts->stages;
    saver->group = opts->group;
    saver->fence = *opts->fence;
    saver->rank = ash_group_rank(opts->group);
    saver->is_whole = ash_mesh_is_whole(opts->stages->mesh);
    rc =
        ash_holdings_open(ash_model_get_config(opts->stages->chunks[0].state.model), opts->mesh, &saver->holdings, err);
    if (rc == 0) rc = ash_save_plan_init(&saver->plan, ash_holdings_outline(saver->holdings), err);
    if (rc == 0) rc = ash_piece_writer_open(&writer, &saver->writer, err);
    if (rc == 0) rc = find_shared(saver, opts->root, err);
    if (rc == 0) {
        rc = ash_thread_start(&saver->thread, ash_saver_main, saver);
        saver->has_thread = rc == 0;
        if (rc < 0) ash_err_set(err, rc, "cannot start the thread that saves: %s", strerror(-rc));
    }
    if (rc < 0) {
        ash_saver_close(saver);
        return rc;
    }
    *saver_out = saver;
    return 0;
}

/* Does something of this rank wait for its thread? The mutex is held. */
static bool has_work(const struct ash_saver *saver)
{
    for (const struct ash_save *save = saver->saves; save != NULL; save = save->next)
        if (!save->is_written) return true;
    return saver->saves != NULL && saver->saves->is_agreed;
}

/* Until the thread is idle. Saves that are not agreed yet stay. */
static void wait_for_thread(struct ash_saver *saver)
{
    pthread_mutex_lock(&saver->mutex);
    while (saver->has_thread && has_work(saver))
        pthread_cond_wait(&saver->changed, &saver->mutex);
    pthread_mutex_unlock(&saver->mutex);
}

void ash_saver_close(struct ash_saver *saver)
{
    if (saver == NULL) return;
    ash_saver_drop(saver);
    pthread_mutex_lock(&saver->mutex);
    saver->is_stopping = true;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
    if (saver->has_thread) pthread_join(saver->thread, NULL);
    ash_piece_writer_close(saver->writer);
    ash_save_plan_fini(&saver->plan);
    ash_holdings_close(saver->holdings);
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->mutex);
    free(saver);
}

/* Until this rank's thread has a result, or a check of the others is due. */
static void wait_a_little(struct ash_saver *saver)
{
    struct timespec until = ash_cond_deadline(LOOK_NS);

    pthread_mutex_lock(&saver->mutex);
    pthread_cond_timedwait(&saver->changed, &saver->mutex, &until);
    pthread_mutex_unlock(&saver->mutex);
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

static enum ash_save_mode mode_of(const struct ash_saver *saver, const struct ash_save_opts *opts)
{
    if (opts->is_alone || saver->group == NULL) return ASH_SAVE_ALONE;
    if (saver->is_shared) return ASH_SAVE_SHARED;
    return saver->is_whole ? ASH_SAVE_ALONE : ASH_SAVE_GATHERED;
}

static void find_sources(const struct ash_saver *saver, struct ash_save *save)
{
    for (size_t c = 0; c < saver->stages->chunk_count; c++) {
        const struct ash_state *state = &saver->stages->chunks[c].state;

        save->sources[c].kinds[ASH_HOLDING_WEIGHTS] = ash_model_values(state->model);
        save->sources[c].kinds[ASH_HOLDING_M] = state->m.data;
        save->sources[c].kinds[ASH_HOLDING_V] = state->v.data;
    }
}

static int save_new(const struct ash_saver *saver, const struct ash_save_opts *opts, struct ash_save **save_out,
                    struct ash_err *err)
{
    struct ash_save *save = calloc(1, sizeof(*save));

    if (save == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a save");
    save->sources = calloc(saver->stages->chunk_count, sizeof(*save->sources));
    if (save->sources == NULL) {
        free(save);
        return ash_err_set(err, -ENOMEM, "out of memory for a save");
    }
    save->opts = *opts;
    save->mode = mode_of(saver, opts);
    save->file_count = opts->is_export ? ASH_SAVE_MOMENTS : ASH_SAVE_FILES;
    save->state = opts->state;
    save->began_ns = ash_clock_ns();
    snprintf(save->dir, sizeof(save->dir), "%s", opts->dir);
    if (opts->tokenizer_dir != NULL) {
        snprintf(save->tokenizer_dir, sizeof(save->tokenizer_dir), "%s", opts->tokenizer_dir);
        save->opts.tokenizer_dir = save->tokenizer_dir;
    }
    save->opts.dir = save->dir;
    save->rc = opts->refused_rc;
    if (save->rc < 0) ash_err_set(&save->err, save->rc, "%s", opts->refused);
    find_sources(saver, save);
    *save_out = save;
    return 0;
}

/* An export is written to the first rank's folder; a failure there is the save's. */
static int begin_export(struct ash_saver *saver, struct ash_save *save, struct ash_err *err)
{
    int rc = 0;

    if (saver->rank == 0) {
        if (save->rc == 0) save->rc = ash_fence_check(&saver->fence, &save->err);
        if (save->rc == 0) save->rc = ash_commit_begin(save->opts.dir, &save->commit, &save->err);
        if (save->rc == 0) snprintf(save->dir, sizeof(save->dir), "%s", ash_commit_dir(save->commit));
        if (save->rc < 0) save->dir[0] = '\0';
    }
    if (save->mode != ASH_SAVE_ALONE) rc = ash_group_broadcast(saver->group, save->dir, sizeof(save->dir), 0, err);
    if (rc == 0 && save->dir[0] == '\0' && save->rc == 0) save->rc = -EIO;
    return rc;
}

/* Some saves are written before begin returns. */
static int write_now(struct ash_saver *saver, struct ash_save *save, struct ash_err *err)
{
    if (save->rc < 0 && save->mode != ASH_SAVE_GATHERED) {
        save->is_copied = save->is_written = true;
        return 0;
    }
    if (save->mode == ASH_SAVE_GATHERED) return ash_save_gather(saver, save, err);
    if (saver->stages->exec->memory->host_visible) return 0;
    save->rc = ash_save_copy(saver, save, &save->err);
    save->rc = ash_save_settle(saver, save, save->rc, &save->err);
    save->is_written = true;
    return 0;
}

static size_t count_unagreed(struct ash_saver *saver)
{
    size_t count = 0;

    pthread_mutex_lock(&saver->mutex);
    for (const struct ash_save *save = saver->saves; save != NULL; save = save->next)
        count += !save->is_agreed;
    pthread_mutex_unlock(&saver->mutex);
    return count;
}

/* Until one of those under way is over: how many there are is the same on all ranks that write. */
static int wait_for_turn(struct ash_saver *saver, struct ash_err *err)
{
    int rc = 0;

    while (rc == 0 && count_unagreed(saver) >= ASH_SAVER_UNDER_WAY_MAX) {
        rc = ash_saver_poll(saver, err);
        if (rc == 0 && count_unagreed(saver) >= ASH_SAVER_UNDER_WAY_MAX) wait_a_little(saver);
    }
    return rc;
}

static void append(struct ash_saver *saver, struct ash_save *save)
{
    struct ash_save **last = &saver->saves;

    pthread_mutex_lock(&saver->mutex);
    while (*last != NULL)
        last = &(*last)->next;
    *last = save;
    save->is_agreed = save->is_written && !ash_save_has_company(saver, save);
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
}

int ash_saver_begin(struct ash_saver *saver, const struct ash_save_opts *opts, struct ash_err *err)
{
    struct ash_save *save = NULL;
    int rc = save_new(saver, opts, &save, err);

    if (rc < 0) {
        json_decref(opts->state);
        return rc;
    }
    if (save->mode == ASH_SAVE_ALONE && saver->rank != 0) { /* nothing to do for this one */
        ash_save_free(save);
        return 0;
    }
    rc = wait_for_turn(saver, err);
    /* the writer belongs to the thread while that has work */
    if (rc == 0 && (save->mode == ASH_SAVE_GATHERED || !saver->stages->exec->memory->host_visible))
        wait_for_thread(saver);
    if (rc == 0 && opts->is_export) rc = begin_export(saver, save, err);
    if (rc == 0) rc = write_now(saver, save, err);
    if (rc < 0) {
        ash_save_free(save);
        return rc;
    }
    append(saver, save);
    return 0;
}

uint64_t ash_saver_release(struct ash_saver *saver)
{
    const struct ash_save *save;
    uint64_t began_ns = 0;

    pthread_mutex_lock(&saver->mutex);
    for (;;) {
        save = saver->saves;
        while (save != NULL && save->is_copied)
            save = save->next;
        if (save == NULL) break;
        if (began_ns == 0) began_ns = ash_clock_ns();
        pthread_cond_wait(&saver->changed, &saver->mutex);
    }
    pthread_mutex_unlock(&saver->mutex);
    return began_ns == 0 ? 0 : ash_clock_ns() - began_ns;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

bool ash_saver_take_result(struct ash_saver *saver, struct ash_save_result *result_out)
{
    bool has_one;

    pthread_mutex_lock(&saver->mutex);
    has_one = saver->result_count > 0;
    if (has_one) {
        *result_out = saver->results[0];
        memmove(&saver->results[0], &saver->results[1], --saver->result_count * sizeof(saver->results[0]));
    }
    pthread_mutex_unlock(&saver->mutex);
    return has_one;
}

int ash_saver_finish(struct ash_saver *saver, void (*waiting)(void *ctx), void *ctx, struct ash_err *err)
{
    uint64_t said_ns = ash_clock_ns();

    for (;;) {
        bool is_over;
        int rc = ash_saver_poll(saver, err);

        if (rc < 0) return rc;
        pthread_mutex_lock(&saver->mutex);
        is_over = saver->saves == NULL;
        pthread_mutex_unlock(&saver->mutex);
        if (is_over) return 0;
        wait_a_little(saver);
        if (waiting != NULL && ash_clock_ns() - said_ns >= WAITING_NS) {
            waiting(ctx);
            said_ns = ash_clock_ns();
        }
    }
}

bool ash_saver_drop(struct ash_saver *saver)
{
    struct ash_save *dropped;
    bool has_any;

    atomic_store(&saver->is_giving_up, true);
    wait_for_thread(saver);
    pthread_mutex_lock(&saver->mutex);
    dropped = saver->saves;
    saver->saves = NULL;
    pthread_mutex_unlock(&saver->mutex);
    atomic_store(&saver->is_giving_up, false);
    has_any = dropped != NULL;
    while (dropped != NULL) {
        struct ash_save *next = dropped->next;

        if (saver->rank == 0) ash_save_discard(saver, dropped);
        ash_save_free(dropped);
        dropped = next;
    }
    return has_any;
}

size_t ash_saver_peak_bytes(const struct ash_saver *saver)
{
    return ash_piece_writer_peak_bytes(saver->writer);
}
