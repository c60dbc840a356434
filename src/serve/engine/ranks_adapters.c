/* ranks: adapters. Each rank has its part of every one; a message names them by number. */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/assert.h"
#include "serve/engine/ranks_priv.h"

/* ---- the first rank ---------------------------------------------------------------------------------------------- */

size_t ash_ranks_adapter_id(struct ash_ranks *ranks, const struct ash_model *adapters)
{
    size_t id = 0;

    if (adapters == NULL) return 0;
    pthread_mutex_lock(&ranks->adapters_lock);
    for (size_t i = 0; i < ranks->adapter_count; i++)
        if (ranks->adapters[i].model == adapters) id = ranks->adapters[i].id;
    pthread_mutex_unlock(&ranks->adapters_lock);
    ash_assert(id > 0);
    return id;
}

/* Take an adapter out that is gone. Returns its number, or 0: there is none. */
static size_t take_gone(struct ash_ranks *ranks)
{
    size_t id = 0;

    pthread_mutex_lock(&ranks->adapters_lock);
    for (size_t i = 0; i < ranks->adapter_count && id == 0; i++) {
        if (ranks->adapters[i].model != NULL) continue;
        id = ranks->adapters[i].id;
        ranks->adapters[i] = ranks->adapters[--ranks->adapter_count];
    }
    pthread_mutex_unlock(&ranks->adapters_lock);
    return id;
}

int ash_ranks_drop_adapters(struct ash_ranks *ranks, struct ash_err *err)
{
    size_t id;
    int rc = 0;

    while (rc == 0 && (id = take_gone(ranks)) > 0) {
        rc = ash_ranks_begin(ranks, ASH_RANKS_DROP_ADAPTER, 1, err);
        if (rc < 0) return rc;
        ash_ranks_add(ranks, id);
        rc = ash_ranks_send(ranks, err);
    }
    return rc;
}

int ash_ranks_send_adapter(struct ash_ranks *ranks, const struct ash_model *adapters, const char *dir,
                           struct ash_err *err)
{
    size_t id = ranks->next_adapter + 1;
    int rc = ash_ranks_drop_adapters(ranks, err);

    if (rc == 0) rc = ash_ranks_begin(ranks, ASH_RANKS_LOAD_ADAPTER, 1 + ash_ranks_text_words(dir), err);
    if (rc < 0) return rc;
    ash_ranks_add(ranks, id);
    ash_ranks_add_text(ranks, dir);
    rc = ash_ranks_send(ranks, err);
    if (rc < 0) return rc;
    ranks->next_adapter = id;
    pthread_mutex_lock(&ranks->adapters_lock);
    rc = ash_array_reserve(&ranks->adapters, &ranks->adapter_room, ranks->adapter_count + 1, sizeof(*ranks->adapters));
    if (rc == 0) ranks->adapters[ranks->adapter_count++] = (struct ash_ranks_adapter){adapters, id};
    pthread_mutex_unlock(&ranks->adapters_lock);
    rc = ash_ranks_agree(ranks, rc < 0 ? ash_err_set(err, rc, "no memory for an adapter") : 0, err);
    if (rc < 0) ash_ranks_forget_adapter(ranks, adapters);
    return rc;
}

void ash_ranks_forget_adapter(struct ash_ranks *ranks, const struct ash_model *adapters)
{
    if (ranks == NULL) return;
    pthread_mutex_lock(&ranks->adapters_lock);
    for (size_t i = 0; i < ranks->adapter_count; i++)
        if (ranks->adapters[i].model == adapters) ranks->adapters[i].model = NULL;
    pthread_mutex_unlock(&ranks->adapters_lock);
}
