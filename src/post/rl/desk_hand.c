/* desk: who draws what. Groups are handed out in the order of rollouts and prompts; a sampler gets half of its share of
 * what waits, so that all end at about the same time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "post/rl/desk_priv.h"

void ash_desk_free_order(struct ash_desk_order *order)
{
    if (order == NULL) return;
    for (size_t g = 0; g < order->count; g++)
        ash_str_fini(&order->groups[g].answers);
    free(order->groups);
    ash_str_fini(&order->tasks);
    free(order);
}

/* Samplers that can be given work, or have some. */
static size_t count_working(const struct ash_desk *desk)
{
    size_t count = 0;

    for (size_t i = 0; i < desk->sampler_count; i++)
        count += desk->samplers[i].is_known && !desk->samplers[i].is_silent;
    return ash_max(count, 1);
}

static size_t count_waiting(const struct ash_desk_order *order)
{
    size_t count = 0;

    for (size_t g = 0; g < order->count; g++)
        count += order->groups[g].state == ASH_DESK_WAITING;
    return count;
}

/* Some groups of an order that wait, into a message. */
static int give_groups(struct ash_desk *desk, struct ash_desk_sampler *sampler, struct ash_desk_order *order,
                       size_t *count)
{
    int rc = 0;

    for (size_t g = 0; rc == 0 && g<order->count && * count> 0; g++) {
        struct ash_desk_group *group = &order->groups[g];

        if (group->state != ASH_DESK_WAITING) continue;
        rc = ash_str_add(&sampler->out, order->tasks.data + group->first, group->bytes);
        desk->figures.redrawn += group->was_out;
        group->state = ASH_DESK_OUT;
        group->was_out = true;
        group->holder = sampler->id;
        --*count;
    }
    return rc;
}

/* A message with groups of an order. */
static int give(struct ash_desk *desk, struct ash_desk_sampler *sampler, struct ash_desk_order *order, size_t count)
{
    ssize_t start = ash_wire_begin(&sampler->out, ASH_WIRE_WORK);
    int rc = start < 0 ? (int)start : ash_str_add(&sampler->out, &order->work, sizeof(order->work));

    if (rc == 0) rc = give_groups(desk, sampler, order, &count);
    if (rc < 0) return rc;
    ash_wire_end(&sampler->out, (size_t)start);
    sampler->is_busy = true;
    sampler->heard_ns = ash_clock_ns();
    return 0;
}

void ash_desk_hand_out(struct ash_desk *desk)
{
    (void)ash_desk_unblock(desk); /* without memory some wait for the next time */
    for (size_t i = 0; i < desk->sampler_count; i++) {
        struct ash_desk_sampler *sampler = &desk->samplers[i];
        struct ash_desk_order *order = desk->orders;
        size_t samplers = count_working(desk), waiting;

        if (sampler->fd < 0 || !sampler->is_known || sampler->is_busy || sampler->is_leaving) continue;
        while (order != NULL && count_waiting(order) == 0)
            order = order->next;
        if (order == NULL) return;
        waiting = count_waiting(order);
        if (give(desk, sampler, order, samplers == 1 ? waiting : ash_div_up(waiting, 2 * samplers)) < 0)
            sampler->is_leaving = true; /* without memory for the message it is lost */
    }
}

void ash_desk_take_back(struct ash_desk *desk, const struct ash_desk_sampler *sampler)
{
    for (struct ash_desk_order *order = desk->orders; order != NULL; order = order->next)
        for (size_t g = 0; g < order->count; g++)
            if (order->groups[g].state == ASH_DESK_OUT && order->groups[g].holder == sampler->id)
                order->groups[g].state = ASH_DESK_WAITING;
}

/* Where an answer belongs; NULL: it is not wanted any more. */
static struct ash_desk_group *find_group(struct ash_desk *desk, const struct ash_wire_answer *answer,
                                         struct ash_desk_order **order_out)
{
    struct ash_desk_order *order = desk->orders;

    while (order != NULL && order->id != answer->order)
        order = order->next;
    *order_out = order;
    for (size_t g = 0; order != NULL && g < order->count; g++)
        if (order->groups[g].number == answer->group)
            return order->groups[g].state == ASH_DESK_DONE ? NULL : &order->groups[g];
    return NULL;
}

/* Is it an answer to the next task of its group, within its bounds? */
static bool answers_task(const struct ash_desk_order *order, const struct ash_desk_group *group,
                         const struct ash_wire_answer *answer)
{
    struct ash_wire_reader tasks = {(const uint8_t *)order->tasks.data + group->first, group->bytes, 0};
    struct ash_wire_task task = {0};

    for (size_t i = 0; i <= group->came; i++)
        if (ash_wire_next_task(&tasks, &task) <= 0) return false;
    return task.answer == answer->answer && answer->count > 0 && answer->count <= task.more;
}

int ash_desk_take_answers(struct ash_desk *desk, struct ash_desk_sampler *sampler, struct ash_wire_reader *reader)
{
    struct ash_wire_answer answer;
    int rc;

    while ((rc = ash_wire_next_answer(reader, &answer)) > 0) {
        struct ash_desk_order *order = NULL;
        struct ash_desk_group *group = find_group(desk, &answer, &order);

        if (group == NULL) continue;
        if (!answers_task(order, group, &answer)) return -EBADMSG;
        if (group->came == 0) ash_str_clear(&group->answers); /* of a message that was cut off */
        rc = ash_wire_add_answer(&group->answers, &answer);
        if (rc < 0) return rc;
        if (++group->came < group->count) continue;
        group->came = 0;
        group->state = ASH_DESK_DONE;
        order->done++;
    }
    for (struct ash_desk_order *order = desk->orders; order != NULL; order = order->next)
        for (size_t g = 0; g < order->count; g++)
            order->groups[g].came = 0;
    ash_desk_take_back(desk, sampler); /* the groups without an answer */
    sampler->is_busy = false;
    sampler->is_silent = false;
    pthread_cond_broadcast(&desk->changed);
    return rc;
}
