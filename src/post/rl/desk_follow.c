/* desk: orders that continue the answers of others (rollout.chunk). */
#include <errno.h>

#include "base/assert.h"
#include "post/rl/desk_priv.h"

/* A task goes on after what was drawn for it. */
static int add_task(struct ash_desk_order *order, struct ash_wire_task *task, const struct ash_wire_answer *answer)
{
    struct ash_str ids = {0};
    int rc = ash_str_add(&ids, task->ids, task->count * sizeof(int32_t));

    if (rc == 0) rc = ash_str_add(&ids, answer->ids, answer->count * sizeof(int32_t));
    task->order = order->id;
    task->more = order->continued.more;
    task->count += answer->count;
    task->ids = (const int32_t *)(const void *)ids.data;
    if (rc == 0) rc = ash_wire_add_task(&order->tasks, task);
    ash_str_fini(&ids);
    return rc;
}

/* before: the order that this one continues; drawn: the same group there, which is done. */
static int unblock_group(struct ash_desk_order *order, struct ash_desk_group *group,
                         const struct ash_desk_order *before, const struct ash_desk_group *drawn)
{
    const char *own = drawn->bytes > 0 ? before->tasks.data + drawn->first : NULL;
    struct ash_wire_reader tasks = {(const uint8_t *)own, drawn->bytes, 0},
                           answers = {(const uint8_t *)drawn->answers.data, drawn->answers.size_bytes, 0};
    struct ash_wire_task task;
    struct ash_wire_answer answer;
    size_t first = order->tasks.size_bytes, count = 0;
    int rc = 0;

    while (rc == 0 && drawn->count > 0 && ash_wire_next_task(&tasks, &task) > 0 &&
           ash_wire_next_answer(&answers, &answer) > 0) {
        ash_assert(task.answer == answer.answer); /* answers came in the order of tasks */
        if (answer.has_ended) continue;
        rc = add_task(order, &task, &answer);
        count++;
    }
    if (rc < 0) {
        ash_str_cut(&order->tasks, first);
        return rc;
    }
    group->first = first;
    group->bytes = order->tasks.size_bytes - first;
    group->count = count;
    group->state = count > 0 ? ASH_DESK_WAITING : ASH_DESK_DONE;
    order->done += count == 0;
    return 0;
}

int ash_desk_unblock(struct ash_desk *desk)
{
    int rc = 0;

    for (struct ash_desk_order *order = desk->orders; rc == 0 && order != NULL; order = order->next) {
        const struct ash_desk_order *before = desk->orders;
        size_t done = order->done;

        if (order->continued.order == 0) continue;
        while (before != NULL && before->id != order->continued.order)
            before = before->next;
        for (size_t g = 0; rc == 0 && before != NULL && g < order->count; g++)
            if (order->groups[g].state == ASH_DESK_BLOCKED && before->groups[g].state == ASH_DESK_DONE)
                rc = unblock_group(order, &order->groups[g], before, &before->groups[g]);
        if (order->done > done) pthread_cond_broadcast(&desk->changed);
    }
    return rc;
}
