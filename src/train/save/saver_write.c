/* saver: the thread of a rank: walk over the rank's ranges, copy them into the buffers of a piece writer, and, on the
 * first rank, end a save with its manifest. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "model/files/lora_folder.h"
#include "model/files/save.h"
#include "model/lora.h"
#include "train/data/tokenizer_files.h"
#include "train/layout/collect.h"
#include "train/save/saver_priv.h"

/* ---- copying ----------------------------------------------------------------------------------------------------- */

struct walk {
    struct ash_saver *saver;
    const struct ash_save *save;
    struct ash_err *err;
};

/* Bytes to write. memory: of the device that they are on; NULL: the host. */
struct bytes {
    const void *data;
    size_t size_bytes;
    const struct ash_memory_ops *memory;
};

/* Some bytes into a file. */
static int put_bytes(struct ash_piece_set *set, size_t file, uint64_t offset, const struct bytes *bytes,
                     struct ash_err *err)
{
    const struct ash_memory_ops *memory = bytes->memory;
    const char *from = bytes->data;
    size_t size_bytes = bytes->size_bytes;

    while (size_bytes > 0) {
        void *room;
        ssize_t some = ash_piece_set_room(set, file, offset, size_bytes, &room, err);
        int rc = 0;

        if (some < 0) return (int)some;
        if (memory != NULL)
            rc = memory->copy(room, from, (size_t)some);
        else
            memcpy(room, from, (size_t)some);
        if (rc < 0) return ash_err_set(err, rc, "cannot read the state from the memory of '%s'", memory->name);
        ash_piece_set_filled(set);
        from += some;
        offset += (uint64_t)some;
        size_bytes -= (size_t)some;
    }
    return 0;
}

static const struct ash_memory_ops *device_memory(const struct ash_saver *saver)
{
    const struct ash_memory_ops *memory = saver->stages->exec->memory;

    return memory->host_visible ? NULL : memory;
}

/* The pieces of a file that this rank writes of a holding. */
static int put_holding(void *ctx, const struct ash_holding *holding)
{
    const struct walk *walk = ctx;
    const struct ash_save *save = walk->save;
    size_t file = ash_save_plan_file(holding->kind), left = holding->elements.count * sizeof(float);
    uint64_t offset = ash_save_plan_offset(&walk->saver->plan, holding->kind, holding->tensor, holding->elements.first);
    const char *data = (const char *)(save->sources[holding->chunk].kinds[holding->kind] + holding->at);

    if (file >= save->file_count || !holding->is_counted) return 0;
    if (atomic_load_explicit(&walk->saver->is_giving_up, memory_order_relaxed))
        return ash_err_set(walk->err, -ECANCELED, "the save was given up");
    while (left > 0) {
        uint64_t piece = offset / ASH_PIECE_BYTES, end = (piece + 1) * ASH_PIECE_BYTES;
        size_t some = left < end - offset ? left : (size_t)(end - offset);
        int rc = 0;

        if (save->mode == ASH_SAVE_ALONE || ash_holding_is_writer(holding, piece))
            rc = put_bytes(save->set, file, offset, &(struct bytes){data, some, device_memory(walk->saver)}, walk->err);
        if (rc < 0) return rc;
        data += some;
        offset += some;
        left -= some;
    }
    return 0;
}

static int put_headers(struct ash_saver *saver, const struct ash_save *save, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < save->file_count; i++) {
        const struct ash_safetensors_layout *layout = &saver->plan.layouts[i];
        rc = put_bytes(save->set, i, 0, &(struct bytes){layout->header, layout->header_bytes, NULL}, err);
    }
    return rc;
}

/* Configuration and tokenizer. */
static int write_small_files(const struct ash_saver *saver, const struct ash_save *save, struct ash_err *err)
{
    const struct ash_model *outline = ash_holdings_outline(saver->holdings);
    const struct ash_lora *lora = ash_model_get_config(outline)->lora;
    int rc = ash_model_save_config(outline, save->dir, ASH_F32, err);

    if (rc == 0 && lora != NULL) rc = ash_lora_save_config(lora, save->dir, err);
    if (rc < 0) return rc;
    return ash_tokenizer_files_copy(save->opts.tokenizer_dir, save->dir, ash_model_get_config(outline), err);
}

static void set_copied(struct ash_saver *saver, struct ash_save *save)
{
    pthread_mutex_lock(&saver->mutex);
    save->is_copied = true;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
}

static int open_set(struct ash_saver *saver, struct ash_save *save, bool sets_sizes, struct ash_err *err)
{
    struct ash_piece_set_opts opts = {save->dir, saver->plan.files, save->file_count, sets_sizes};
    int rc = ash_fence_check(&saver->fence, err);

    if (rc == 0 && !save->opts.is_export) rc = ash_commit_claim(save->dir, err);
    return rc < 0 ? rc : ash_piece_set_open(saver->writer, &opts, &save->set, err);
}

int ash_save_copy(struct ash_saver *saver, struct ash_save *save, struct ash_err *err)
{
    struct walk walk = {.saver = saver, .save = save, .err = err};
    int rc = open_set(saver, save, saver->rank == 0, err);

    if (rc == 0 && saver->rank == 0) rc = put_headers(saver, save, err);
    if (rc == 0) rc = ash_holdings_each(saver->holdings, saver->rank, put_holding, &walk, err);
    if (rc == 0) ash_piece_set_submit(save->set);
    set_copied(saver, save);
    return rc;
}

int ash_save_settle(struct ash_saver *saver, struct ash_save *save, int rc, struct ash_err *err)
{
    struct ash_piece_set *set = save->set;
    struct ash_err late = {0};
    int ended;

    save->set = NULL;
    if (set == NULL) return rc;
    if (rc < 0) ash_piece_set_cancel(set, rc);
    ended = ash_piece_set_close(set, rc == 0 ? save->pieces : NULL, rc == 0 ? err : &late);
    if (rc == 0) rc = ended;
    if (rc == 0 && saver->rank == 0) rc = write_small_files(saver, save, err);
    return rc;
}

/* ---- what others hold -------------------------------------------------------------------------------------------- */

/* The first rank's part: every tensor in order. */
static int put_tensors(struct ash_saver *saver, const struct ash_save *save, struct ash_collect *collect,
                       struct ash_err *err)
{
    static const enum ash_collect_kind kinds[] = {ASH_COLLECT_WEIGHTS, ASH_COLLECT_M, ASH_COLLECT_V};
    const struct ash_model *outline = ash_holdings_outline(saver->holdings);
    int rc = put_headers(saver, save, err);

    for (size_t file = 0; file < save->file_count; file++)
        for (size_t t = 0; t < ash_model_param_count(outline); t++)
            for (int k = 0; rc == 0 && k < ASH_HOLDING_KINDS; k++) {
                enum ash_holding_kind kind = (enum ash_holding_kind)k;
                size_t bytes = ash_param_full_count(ash_model_param(outline, t)) * sizeof(float);
                const float *values;

                if (ash_save_plan_file(kind) != file || !ash_holdings_has(saver->holdings, kind, t)) continue;
                rc = ash_collect_tensor(collect, kinds[k], t, &values, err);
                if (rc == 0)
                    rc = put_bytes(save->set, file, ash_save_plan_offset(&saver->plan, kind, t, 0),
                                   &(struct bytes){values, bytes, NULL}, err);
            }
    return rc;
}

static int write_gathered(struct ash_saver *saver, struct ash_save *save, struct ash_collect *collect,
                          struct ash_err *err)
{
    int rc = open_set(saver, save, true, err);

    if (rc == 0) rc = put_tensors(saver, save, collect, err);
    return ash_save_settle(saver, save, rc, err);
}

int ash_save_gather(struct ash_saver *saver, struct ash_save *save, struct ash_err *err)
{
    struct ash_collect *collect = NULL;
    int rc = ash_collect_open(saver->stages, save->file_count > ASH_SAVE_MOMENTS, &collect, err), result = 0, lost;

    if (rc < 0) return rc;
    rc = save->rc;
    if (saver->rank == 0 && rc == 0) rc = write_gathered(saver, save, collect, &save->err);
    lost = ash_collect_close(collect, rc, &result, err);
    save->rc = result;
    save->is_copied = save->is_written = true;
    return lost;
}

/* ---- committing -------------------------------------------------------------------------------------------------- */

static int write_manifest(struct ash_saver *saver, struct ash_save *save, struct ash_err *err)
{
    struct ash_commit_sums known[ASH_SAVE_FILES];
    struct ash_commit *commit = save->commit;
    int rc = ash_fence_check(&saver->fence, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < save->file_count; i++)
        known[i] = (struct ash_commit_sums){saver->plan.files[i].name, &save->pieces[i]};
    /* the log must have the manifest's steps on disk; EINVAL: a log that cannot be flushed */
    if (save->opts.flush_fd >= 0 && fdatasync(save->opts.flush_fd) != 0 && errno != EINVAL)
        return ash_err_set(err, -errno, "the log cannot be flushed: %s", strerror(errno));
    if (commit == NULL) return ash_commit_seal(save->dir, known, save->file_count, save->state, err);
    save->commit = NULL;
    return ash_commit_finish_known(commit, known, save->file_count, save->state, err);
}

void ash_save_discard(const struct ash_saver *saver, const struct ash_save *save)
{
    if (save->opts.is_export || ash_fence_check(&saver->fence, NULL) < 0) return;
    ash_commit_discard(save->dir, NULL);
}

void ash_save_commit(struct ash_saver *saver, struct ash_save *save)
{
    if (save->rc == 0) save->rc = write_manifest(saver, save, &save->err);
    if (save->rc == 0) {
        if (save->opts.ended != NULL) save->opts.ended(save->opts.ctx, &save->opts, 0);
        return;
    }
    ash_commit_abort(save->commit);
    save->commit = NULL;
    ash_save_discard(saver, save);
    if (save->opts.ended != NULL) save->opts.ended(save->opts.ctx, &save->opts, save->rc);
}

bool ash_save_has_company(const struct ash_saver *saver, const struct ash_save *save)
{
    return saver->group != NULL && save->mode != ASH_SAVE_ALONE;
}

void ash_save_free(struct ash_save *save)
{
    if (save == NULL) return;
    ash_assert(save->set == NULL);
    for (size_t i = 0; i < ASH_SAVE_FILES; i++)
        ash_pieces_fini(&save->pieces[i]);
    ash_commit_abort(save->commit);
    json_decref(save->state);
    free(save->sources);
    free(save);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void add_result(struct ash_saver *saver, const struct ash_save *save)
{
    struct ash_save_result result = {.number = save->opts.number,
                                     .place = save->opts.place,
                                     .rc = save->rc,
                                     .err = save->err,
                                     .seconds = (double)(ash_clock_ns() - save->began_ns) * 1e-9};

    for (size_t i = 0; i < save->file_count; i++)
        result.size_bytes += saver->plan.files[i].size_bytes;
    if (saver->result_count == sizeof(saver->results) / sizeof(saver->results[0])) /* not taken: the newest stay */
        memmove(&saver->results[0], &saver->results[1], --saver->result_count * sizeof(saver->results[0]));
    saver->results[saver->result_count++] = result;
}

/* This rank is done with a save, well or not. The mutex is held. */
static void set_written(struct ash_saver *saver, struct ash_save *save, int rc, const struct ash_err *err)
{
    save->rc = rc;
    save->err = *err;
    save->is_written = true;
    /* agreed without other ranks, unless the owner has given it up */
    if (!ash_save_has_company(saver, save) && !atomic_load(&saver->is_giving_up)) save->is_agreed = true;
    pthread_cond_broadcast(&saver->changed);
}

/* The mutex is held, but not while it works. */
static void copy_once(struct ash_saver *saver, struct ash_save *save)
{
    struct ash_err err = {0};
    int rc;

    pthread_mutex_unlock(&saver->mutex);
    rc = ash_save_copy(saver, save, &err);
    if (rc < 0) rc = ash_save_settle(saver, save, rc, &err);
    pthread_mutex_lock(&saver->mutex);
    if (rc < 0) set_written(saver, save, rc, &err);
}

/* The same. */
static void commit_once(struct ash_saver *saver, struct ash_save *save)
{
    ash_assert(save == saver->saves);
    pthread_mutex_unlock(&saver->mutex);
    ash_save_commit(saver, save);
    pthread_mutex_lock(&saver->mutex);
    add_result(saver, save);
    saver->saves = save->next;
    ash_save_free(save);
    pthread_cond_broadcast(&saver->changed);
}

/* The same. One write, or the end of all: a newer save may want to be copied in between. */
static void advance_once(struct ash_saver *saver, struct ash_save *save)
{
    bool is_given_up = atomic_load(&saver->is_giving_up);
    struct ash_err err = {0};
    int rc = 0;

    pthread_mutex_unlock(&saver->mutex);
    if (is_given_up) rc = ash_err_set(&err, -ECANCELED, "the save was given up");
    if (!is_given_up && ash_piece_set_advance(save->set)) {
        pthread_mutex_lock(&saver->mutex);
        return;
    }
    rc = ash_save_settle(saver, save, rc, &err);
    pthread_mutex_lock(&saver->mutex);
    set_written(saver, save, rc, &err);
}

/* The most urgent work first: steps wait for copies, users for manifests. The mutex is held. Returns false if there is
 * nothing to do. */
static bool work_once(struct ash_saver *saver)
{
    struct ash_save *save = saver->saves;

    while (save != NULL && save->is_copied)
        save = save->next;
    if (save != NULL) {
        copy_once(saver, save);
        return true;
    }
    save = saver->saves;
    if (save == NULL) return false;
    if (save->is_agreed) {
        commit_once(saver, save);
        return true;
    }
    while (save != NULL && save->is_written)
        save = save->next;
    if (save == NULL) return false;
    advance_once(saver, save);
    return true;
}

void *ash_saver_main(void *arg)
{
    struct ash_saver *saver = arg;

    pthread_mutex_lock(&saver->mutex);
    while (!saver->is_stopping)
        if (!work_once(saver)) pthread_cond_wait(&saver->changed, &saver->mutex);
    pthread_mutex_unlock(&saver->mutex);
    return NULL;
}
