/* saver: exchange at step boundaries: which ranks have written their parts of a save, and their results. */
#include "base/assert.h"
#include "train/save/saver_priv.h"

/* The sums of all ranks are those of the files. */
static int add_sums(struct ash_saver *saver, struct ash_save *save, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < save->file_count; i++) {
        if (save->pieces[i].sums == NULL) /* this rank wrote nothing */
            rc = ash_pieces_init(&save->pieces[i], saver->plan.files[i].size_bytes, err);
        if (rc == 0)
            rc = ash_group_all_reduce(saver->group, save->pieces[i].sums, save->pieces[i].sums, save->pieces[i].count,
                                      ASH_COLL_I64, ASH_COLL_SUM, err);
    }
    return rc;
}

/* What went wrong with rank `rank`, to all. */
static int share_failure(struct ash_saver *saver, struct ash_save *save, size_t rank, struct ash_err *err)
{
    struct {
        int rc;
        struct ash_err err;
    } message = {save->rc, save->err};
    int rc = ash_group_broadcast(saver->group, &message, sizeof(message), rank, err);

    ash_assert(rank < ash_group_size(saver->group));
    if (rc < 0) return rc;
    save->rc = message.rc;
    save->err = message.err;
    if (rank != saver->rank && rank != 0) ash_err_prefix(&save->err, save->rc, "rank %zu", rank);
    return 0;
}

/* With several ranks: *is_over_out: all are done. */
static int agree(struct ash_saver *saver, struct ash_save *save, bool is_mine_over, bool *is_over_out,
                 struct ash_err *err)
{
    int32_t look[2] = {is_mine_over, is_mine_over && save->rc < 0 ? (int32_t)saver->rank : INT32_MAX};
    int rc = ash_group_all_reduce(saver->group, look, look, 2, ASH_COLL_I32, ASH_COLL_MIN, err);

    *is_over_out = look[0] != 0;
    if (rc < 0 || look[0] == 0) return rc;
    return look[1] == INT32_MAX ? add_sums(saver, save, err) : share_failure(saver, save, (size_t)look[1], err);
}

/* The oldest save that not all ranks are known to have written. *is_mine_over_out: this rank has written it. */
static struct ash_save *find_unagreed(struct ash_saver *saver, bool *is_mine_over_out)
{
    struct ash_save *save;

    pthread_mutex_lock(&saver->mutex);
    save = saver->saves; /* alone, the thread decides, and frees it when it likes */
    while (save != NULL && (save->is_agreed || !ash_save_has_company(saver, save)))
        save = save->next;
    *is_mine_over_out = save != NULL && save->is_written;
    pthread_mutex_unlock(&saver->mutex);
    return save;
}

/* All ranks have written it: the first one's thread continues with it, for the others it is over. */
static void set_agreed(struct ash_saver *saver, struct ash_save *save)
{
    pthread_mutex_lock(&saver->mutex);
    save->is_agreed = true;
    if (saver->rank != 0) {
        ash_assert(saver->saves == save);
        saver->saves = save->next;
        ash_save_free(save);
    }
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
}

int ash_saver_poll(struct ash_saver *saver, struct ash_err *err)
{
    for (;;) {
        bool is_over;
        struct ash_save *save = find_unagreed(saver, &is_over);
        int rc;

        if (save == NULL) return 0;
        rc = agree(saver, save, is_over, &is_over, err);
        if (rc < 0 || !is_over) return rc;
        set_agreed(saver, save);
    }
}
