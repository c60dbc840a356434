/* Rings of a folder, rank by rank. */
#include "observe/ranks/rank_steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "observe/ranks/run_id.h"

static int compare(const void *a, const void *b)
{
    const struct ash_rank_steps *left = a, *right = b;
    int order = strcmp(left->job, right->job);

    if (order == 0) order = strcmp(left->run, right->run);
    if (order == 0) order = strcmp(left->run_id, right->run_id);
    if (order != 0) return order;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

static struct ash_rank_steps rank_of(const struct ash_ring_view *view)
{
    struct ash_rank_steps rank = {.pid = view->pid, .is_alive = view->is_alive, .view = *view};
    char number[32] = "0";

    ash_ring_label(view, "rank", number, sizeof(number));
    ash_ring_label(view, "job", rank.job, sizeof(rank.job));
    ash_ring_label(view, "run", rank.run, sizeof(rank.run));
    ash_ring_label(view, ASH_RUN_ID_LABEL, rank.run_id, sizeof(rank.run_id));
    rank.rank = strtoul(number, NULL, 10);
    return rank;
}

int ash_rank_set_load(struct ash_rank_set *set, const char *dir, struct ash_err *err)
{
    struct ash_ring_view *views = NULL;
    struct ash_rank_set loaded = {0};
    size_t count = 0;
    int rc = ash_ring_read_dir(dir, ASH_STEP_RING_KIND, sizeof(struct ash_step_record), &views, &count, err);

    if (rc < 0) return rc;
    loaded.ranks = calloc(count + 1, sizeof(*loaded.ranks));
    for (size_t i = 0; i < count; i++)
        if (loaded.ranks != NULL)
            loaded.ranks[loaded.count++] = rank_of(&views[i]);
        else
            ash_ring_view_fini(&views[i]);
    free(views);
    if (loaded.ranks == NULL) return ash_err_set(err, -ENOMEM, "no memory for the ranks of '%s'", dir);
    if (loaded.count > 1) qsort(loaded.ranks, loaded.count, sizeof(*loaded.ranks), compare);
    *set = loaded;
    return 0;
}

void ash_rank_set_fini(struct ash_rank_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        ash_ring_view_fini(&set->ranks[i].view);
    free(set->ranks);
    *set = (struct ash_rank_set){0};
}

const struct ash_step_record *ash_rank_step(const struct ash_rank_steps *rank, size_t index)
{
    return (const struct ash_step_record *)(const void *)(rank->view.records + index * rank->view.record_bytes);
}

/* Steps as arrays of numbers: step; milliseconds of own work, data, communication, idle, between; grains. */
static json_t *steps_json(const struct ash_rank_steps *rank, size_t most)
{
    json_t *steps = json_array();

    for (size_t i = rank->view.count > most ? rank->view.count - most : 0; i < rank->view.count; i++) {
        const struct ash_step_record *step = ash_rank_step(rank, i);

        json_array_append_new(
            steps, json_pack("[I,f,f,f,f,f,I]", (json_int_t)(step->step & INT64_MAX),
                             (double)step->ns[ASH_METER_COMPUTE] * 1e-6, (double)step->ns[ASH_METER_DATA] * 1e-6,
                             (double)step->ns[ASH_METER_COMM] * 1e-6, (double)step->ns[ASH_METER_IDLE] * 1e-6,
                             (double)step->after_ns * 1e-6, (json_int_t)(step->grains & INT64_MAX)));
    }
    return steps;
}

/* Sizes of the mesh, and the rank's place: those of its last step, or empty lists. */
static json_t *axes_json(const struct ash_rank_steps *rank, bool wants_place)
{
    const struct ash_step_record *last = rank->view.count > 0 ? ash_rank_step(rank, rank->view.count - 1) : NULL;
    json_t *list = json_array();

    for (unsigned i = 0; last != NULL && last->mesh != 0 && i < ASH_STEP_AXES; i++)
        json_array_append_new(list,
                              json_integer((json_int_t)ash_step_unpack(wants_place ? last->place : last->mesh, i)));
    return list;
}

/* When the last step began, in seconds since 1970; 0: there was none. */
static double seen_s(const struct ash_rank_steps *rank)
{
    if (rank->view.count == 0) return 0;
    return ((double)ash_rank_step(rank, rank->view.count - 1)->start_ns + (double)rank->view.wall_ns) * 1e-9;
}

void ash_rank_steps_json(const char *dir, size_t most, json_t *ranks)
{
    struct ash_rank_set set = {0};

    if (ash_rank_set_load(&set, dir, NULL) < 0) return;
    for (size_t i = 0; i < set.count; i++) {
        const struct ash_rank_steps *rank = &set.ranks[i];

        json_array_append_new(ranks, json_pack("{s:s, s:s, s:s, s:I, s:i, s:b, s:f, s:o, s:o, s:o}", "job", rank->job,
                                               "run", rank->run, ASH_RUN_ID_LABEL, rank->run_id, "rank",
                                               (json_int_t)rank->rank, "pid", (int)rank->pid, "alive", rank->is_alive,
                                               "seen", seen_s(rank), "mesh", axes_json(rank, false), "at",
                                               axes_json(rank, true), "steps", steps_json(rank, most)));
    }
    ash_rank_set_fini(&set);
}
