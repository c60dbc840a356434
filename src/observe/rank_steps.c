/* Rings of a folder, rank by rank. */
#include "observe/rank_steps.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"

#define RANKS_MAX 65536

static int compare(const void *a, const void *b)
{
    const struct ash_rank_steps *left = a, *right = b;
    int order = strcmp(left->job, right->job);

    if (order == 0) order = strcmp(left->run, right->run);
    if (order != 0) return order;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

static int add_file(struct ash_rank_set *set, size_t *capacity, const char *path)
{
    struct ash_rank_steps rank = {0};
    char number[32] = "0";

    if (ash_ring_read(path, ASH_STEP_RING_KIND, &rank.view, NULL) < 0) return 0;
    if (rank.view.record_bytes != sizeof(struct ash_step_record)) {
        ash_ring_view_fini(&rank.view);
        return 0;
    }
    if (set->count == *capacity) {
        struct ash_rank_steps *list = realloc(set->ranks, ash_max(16, 2 * *capacity) * sizeof(*list));

        if (list == NULL) {
            ash_ring_view_fini(&rank.view);
            return -ENOMEM;
        }
        set->ranks = list;
        *capacity = ash_max(16, 2 * *capacity);
    }
    ash_ring_label(&rank.view, "rank", number, sizeof(number));
    ash_ring_label(&rank.view, "job", rank.job, sizeof(rank.job));
    ash_ring_label(&rank.view, "run", rank.run, sizeof(rank.run));
    rank.rank = strtoul(number, NULL, 10);
    rank.pid = rank.view.pid;
    rank.is_alive = rank.view.is_alive;
    set->ranks[set->count++] = rank;
    return 0;
}

int ash_rank_set_load(struct ash_rank_set *set, const char *dir, struct ash_err *err)
{
    struct ash_rank_set loaded = {0};
    DIR *folder = opendir(dir);
    struct dirent *entry;
    char path[PATH_MAX];
    size_t capacity = 0;
    int rc = 0;

    if (folder == NULL) return ash_err_set(err, -errno, "cannot read '%s': %s", dir, strerror(errno));
    while (rc == 0 && loaded.count < RANKS_MAX && (entry = readdir(folder)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');

        if (dot == NULL || strcmp(dot + 1, ASH_STEP_RING_KIND) != 0) continue;
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) < sizeof(path))
            rc = add_file(&loaded, &capacity, path);
    }
    closedir(folder);
    if (rc < 0) {
        ash_rank_set_fini(&loaded);
        return ash_err_set(err, rc, "no memory for the ranks of '%s'", dir);
    }
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

/* Steps as arrays of numbers: step, and milliseconds of own work, data, communication, idle, between. */
static json_t *steps_json(const struct ash_rank_steps *rank, size_t most)
{
    json_t *steps = json_array();

    for (size_t i = rank->view.count > most ? rank->view.count - most : 0; i < rank->view.count; i++) {
        const struct ash_step_record *step = ash_rank_step(rank, i);

        json_array_append_new(steps, json_pack("[I,f,f,f,f,f]", (json_int_t)(step->step & INT64_MAX),
                                               (double)step->ns[ASH_METER_COMPUTE] * 1e-6,
                                               (double)step->ns[ASH_METER_DATA] * 1e-6,
                                               (double)step->ns[ASH_METER_COMM] * 1e-6,
                                               (double)step->ns[ASH_METER_IDLE] * 1e-6, (double)step->after_ns * 1e-6));
    }
    return steps;
}

void ash_rank_steps_json(const char *dir, size_t most, json_t *ranks)
{
    struct ash_rank_set set = {0};

    if (ash_rank_set_load(&set, dir, NULL) < 0) return;
    for (size_t i = 0; i < set.count; i++) {
        const struct ash_rank_steps *rank = &set.ranks[i];

        json_array_append_new(ranks, json_pack("{s:s, s:s, s:I, s:i, s:b, s:o}", "job", rank->job, "run", rank->run,
                                               "rank", (json_int_t)rank->rank, "pid", (int)rank->pid, "alive",
                                               rank->is_alive, "steps", steps_json(rank, most)));
    }
    ash_rank_set_fini(&set);
}
