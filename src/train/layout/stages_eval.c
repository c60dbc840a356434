/* stages: losses without gradients. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "train/layout/stages_priv.h"

/* What an evaluation fills; sequence 0 first. */
struct results {
    double *losses; /* [count] sums; or NULL */
    float *rows;    /* [count, seq]; or NULL */
};

static void note_results(const struct ash_feed *feed, size_t s, uint64_t index, const struct results *results)
{
    size_t seq = feed->seq_tokens;

    ash_assert(s < feed->sequences);
    if (results->losses != NULL) results->losses[index] = ash_feed_loss(feed, s);
    for (size_t r = 0; results->rows != NULL && r < seq; r++)
        results->rows[index * seq + r] = feed->targets[s * seq + r] >= 0 ? feed->losses[s * seq + r] : 0.0f;
}

/* One micro-batch through all chunks that are here, one after the other: the stages of other ranks are between them. */
static int eval_some(struct ash_stages *stages, const struct ash_feed_slice *slice, const struct results *results,
                     struct ash_err *err)
{
    for (size_t i = 0; i < stages->chunk_count; i++) {
        struct ash_stage_slot *slot = &stages->chunks[i].slots[0];
        int rc;

        slot->feed.batch = (struct ash_batch){0};
        if (slice->count > 0) {
            rc = ash_feed_read(&slot->feed, slice, err);
            if (rc < 0) return rc;
        }
        rc = ash_stages_recv_input(stages, slot, err);
        if (rc < 0) return rc;
        rc = ash_pass_forward(slot->pass, &slot->feed.batch, err);
        if (rc < 0) return rc;
        rc = ash_stages_send_output(stages, slot, err);
        if (rc < 0) return rc;
        if (!ash_pass_has_head(slot->pass)) continue;
        rc = ash_pass_losses(slot->pass, slot->feed.losses, NULL, err);
        if (rc < 0) return rc;
        for (size_t s = 0; s < slot->feed.sequences && slice->count > 0; s++)
            note_results(&slot->feed, s, slot->feed.slots[s], results);
    }
    return 0;
}

/* Each data rank has equally many sequences (the last fewer, with empty batches instead: all serve all along ep). */
static int eval_all(struct ash_stages *stages, const struct ash_train_source *source, size_t count,
                    const struct results *results, struct ash_err *err)
{
    size_t rank = ash_mesh_data_rank(stages->mesh), size = ash_mesh_data_size(stages->mesh);
    size_t share = ash_div_up(count, size), first = ash_min(share * rank, count);
    size_t end = ash_min(first + share, count);
    struct ash_feed_slice slice = {.source = source, .slots_per_step = count};
    int rc = ash_stages_catch_up(stages, err);

    /* not all ranks may have a pass that gathers weights */
    for (size_t i = 0; rc == 0 && i < stages->chunk_count; i++)
        rc = ash_fsdp_flush(&stages->chunks[i].fsdp, err);
    if (rc < 0) return rc;
    for (size_t done = 0; done < share; done += stages->micro_batch, first += slice.count) {
        slice.first_slot = first;
        slice.count = ash_min(end - first, stages->micro_batch);
        if (slice.count == 0 && stages->mesh->size[ASH_MESH_EP] == 1 && stages->mesh->zero < 3) break;
        rc = eval_some(stages, &slice, results, err);
        if (rc < 0) return rc;
    }
    return 0;
}

int ash_stages_eval(struct ash_stages *stages, const struct ash_train_source *source, size_t count, double *losses,
                    struct ash_err *err)
{
    int rc;

    memset(losses, 0, count * sizeof(*losses));
    rc = eval_all(stages, source, count, &(struct results){.losses = losses}, err);
    return rc < 0 ? rc : ash_stages_share_losses(stages, losses, count, err);
}

int ash_stages_eval_rows(struct ash_stages *stages, const struct ash_train_source *source, size_t count, float *rows,
                         struct ash_err *err)
{
    struct ash_mesh *mesh = stages->mesh;
    size_t total = count * (size_t)stages->job->data.seq_tokens;
    int rc;

    memset(rows, 0, total * sizeof(*rows));
    rc = eval_all(stages, source, count, &(struct results){.rows = rows}, err);
    if (rc < 0 || mesh->world == NULL) return rc;
    if (!ash_mesh_is_reporting_rank(mesh)) memset(rows, 0, total * sizeof(*rows));
    /* bits: one rank alone has each row, and the others zeros */
    return ash_group_all_reduce(mesh->world, rows, rows, total, ASH_COLL_I32, ASH_COLL_SUM, err);
}
