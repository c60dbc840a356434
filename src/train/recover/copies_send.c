/* copies: send gradients to the holders of peer replicas. A message has those of a layer. Owner and holder cut the
 * owner's list in the same way, so both have all of them, and the last layers, which backward passes complete first,
 * come first. The first copy's messages are sent while the pass runs, in a separate group; those of further copies
 * follow when all sums are complete. A rank sends one copy's messages to one other only, so waits cannot form a
 * circle. */
#include "train/recover/copies_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "collective/call.h"
#include "infra/memory.h"

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Do two parameters belong to one message? */
static bool are_together(const struct ash_param *a, const struct ash_param *b)
{
    return a->layer == b->layer && a->before_layers == b->before_layers && a->is_expert == b->is_expert;
}

/* Patch i of the list follows the others of a message: take it up. */
static void extend(struct ash_copies_message *message, const struct ash_patches *patches, size_t i)
{
    const struct ash_patch *patch = &patches->items[i];

    ash_assert(i < patches->count);
    message->is_scattered =
        message->is_scattered || patch->chunk != message->chunk || patch->grad_at != message->grad_at + message->count;
    message->count += (size_t)patch->range.count;
    message->patch_end = i + 1;
}

static void reverse(struct ash_copies_messages *messages)
{
    for (size_t i = 0; i < messages->count / 2; i++) {
        struct ash_copies_message *a = &messages->items[i], *b = &messages->items[messages->count - 1 - i], other = *a;

        *a = *b;
        *b = other;
    }
}

static int cut(struct ash_copies_messages *messages, const struct ash_patches *patches, const struct ash_model *outline,
               struct ash_err *err)
{
    const struct ash_param *last = NULL;
    size_t first = 0;

    messages->items = calloc(patches->count + 1, sizeof(*messages->items));
    if (messages->items == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu messages", patches->count);
    for (size_t i = 0; i < patches->count; i++) {
        const struct ash_patch *patch = &patches->items[i];
        const struct ash_param *param = ash_model_param(outline, patch->range.param);

        if (patch->range.has_moments == 0) continue;
        if (last == NULL || !are_together(last, param))
            messages->items[messages->count++] = (struct ash_copies_message){
                .first = first, .chunk = patch->chunk, .grad_at = patch->grad_at, .patch = i};
        extend(&messages->items[messages->count - 1], patches, i);
        first += (size_t)patch->range.count;
        last = param;
    }
    reverse(messages);
    return 0;
}

static size_t scattered_bytes(const struct ash_copies *copies)
{
    return (copies->scattered_count + 1) * sizeof(float);
}

int ash_copies_open_messages(struct ash_copies *copies, const struct ash_model *outline, bool sends,
                             struct ash_err *err)
{
    int rc = sends ? cut(&copies->messages, &copies->own, outline, err) : 0;

    for (size_t i = 0; i < copies->messages.count; i++) { /* each has its place in the order of all trained elements */
        const struct ash_copies_message *message = &copies->messages.items[i];

        if (message->is_scattered && message->first + message->count > copies->scattered_count)
            copies->scattered_count = message->first + message->count;
    }
    copies->calls_max = copies->messages.count;
    for (size_t c = 0; rc == 0 && c < copies->held_count; c++) {
        rc = cut(&copies->held[c].messages, &copies->held[c].patches, outline, err);
        copies->calls_max += copies->held[c].messages.count;
    }
    if (rc < 0) return rc;
    copies->calls = calloc(copies->calls_max + 1, sizeof(struct ash_call *));
    if (copies->scattered_count > 0) copies->scattered = ash_memory_host.alloc(scattered_bytes(copies));
    return copies->calls != NULL && (copies->scattered_count == 0 || copies->scattered != NULL)
               ? 0
               : ash_err_set(err, -ENOMEM, "out of memory for gradients on their way");
}

void ash_copies_close_messages(struct ash_copies *copies)
{
    ash_assert(copies->call_count == 0);
    if (copies->scattered != NULL) ash_memory_host.free(copies->scattered, scattered_bytes(copies));
    free(copies->messages.items);
    free(copies->calls);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

int ash_copies_open_lane(struct ash_copies *copies, struct ash_err *err)
{
    if (copies->group == NULL || copies->lane != NULL) return 0;
    return ash_group_split(copies->group, 0, (int64_t)ash_group_rank(copies->group), &copies->lane, err);
}

int ash_copies_settle(struct ash_copies *copies, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < copies->call_count; i++) {
        int done = ash_call_wait(copies->calls[i], rc == 0 ? err : NULL);

        if (rc == 0) rc = done;
    }
    copies->call_count = 0;
    return rc;
}

/* Nothing of a turn is under way. */
static void begin_turn(struct ash_copies *copies)
{
    copies->messages.started = 0;
    for (size_t c = 0; c < copies->held_count; c++)
        copies->held[c].messages.started = 0;
}

void ash_copies_begin(struct ash_copies *copies)
{
    ash_copies_settle(copies, NULL); /* of a step that has failed */
    begin_turn(copies);
}

/* Where a message's gradients are; NULL: not all of them are complete. is_over: they are, the pass is over. */
static const float *find(const struct ash_copies *copies, const struct ash_stages *stages,
                         const struct ash_copies_message *message, bool is_over)
{
    float *at;

    if (!message->is_scattered && is_over) return stages->chunks[message->chunk].grads + message->grad_at;
    if (!message->is_scattered)
        return ash_stages_sum(stages, message->chunk, (struct ash_range){message->grad_at, message->count});
    at = copies->scattered + message->first;
    for (size_t i = message->patch; i < message->patch_end; i++) {
        const struct ash_patch *patch = &copies->own.items[i];
        struct ash_range range = {patch->grad_at, (size_t)patch->range.count};
        const float *from;

        if (patch->range.has_moments == 0) continue;
        from = is_over ? stages->chunks[patch->chunk].grads + range.first : ash_stages_sum(stages, patch->chunk, range);
        if (from == NULL) return NULL;
        if (ash_group_copy(copies->group, at, from, range.count * sizeof(float), NULL) < 0) return NULL;
        at += range.count;
    }
    return copies->scattered + message->first;
}

/* Start to send this rank's next messages, as far as their gradients are complete. */
static int start_sends(struct ash_copies *copies, const struct ash_stages *stages, size_t turn, bool is_over,
                       struct ash_err *err)
{
    const struct ash_copies_map *map = &copies->map;
    uint32_t holder = map->holders[ash_group_rank(copies->group) * map->copies + turn];
    int rc = 0;

    while (rc == 0 && holder != ASH_COPIES_NOBODY && copies->messages.started < copies->messages.count) {
        const struct ash_copies_message *message = &copies->messages.items[copies->messages.started];
        const float *grads = find(copies, stages, message, is_over);

        if (grads == NULL) break;
        rc = ash_group_send_start(copies->lane, holder, grads, message->count * sizeof(float),
                                  &copies->calls[copies->call_count], err);
        copies->call_count += rc == 0;
        copies->messages.started += rc == 0;
    }
    return rc;
}

/* Start to receive the next messages of the copies here, until `most` of each. */
static int start_receives(struct ash_copies *copies, size_t turn, size_t most, struct ash_err *err)
{
    int rc = 0;

    for (size_t c = 0; c < copies->held_count; c++) {
        struct ash_held_copy *copy = &copies->held[c];
        struct ash_copies_messages *messages = &copy->messages;

        while (rc == 0 && copy->turn == turn && messages->started < messages->count && messages->started < most) {
            const struct ash_copies_message *message = &messages->items[messages->started];

            rc = ash_group_recv_start(copies->lane, copy->owner, copy->grads + message->first,
                                      message->count * sizeof(float), &copies->calls[copies->call_count], err);
            copies->call_count += rc == 0;
            messages->started += rc == 0;
        }
    }
    return rc;
}

int ash_copies_send_some(struct ash_copies *copies, const struct ash_stages *stages, struct ash_err *err)
{
    int rc;

    if (copies->group == NULL) return 0;
    ash_assert(copies->lane != NULL);
    rc = start_sends(copies, stages, 0, false, err);
    /* the others are about as far; waiting for them early keeps a thread busy */
    return rc < 0 ? rc : start_receives(copies, 0, copies->messages.started, err);
}

int ash_copies_send(struct ash_copies *copies, const struct ash_stages *stages, struct ash_err *err)
{
    int rc, ended;

    if (copies->group == NULL) return 0;
    rc = ash_copies_open_lane(copies, err);
    for (size_t turn = 0; rc == 0 && turn < copies->map.copies; turn++) {
        if (turn > 0) begin_turn(copies);
        rc = start_sends(copies, stages, turn, true, err);
        if (rc == 0) rc = start_receives(copies, turn, SIZE_MAX, err);
        ended = ash_copies_settle(copies, rc == 0 ? err : NULL);
        if (rc == 0) rc = ended;
    }
    return rc;
}
