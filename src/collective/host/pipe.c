/* The pipeline of large calls. A bounce buffer is used again once every rank has read it. A rank does any step
 * that is ready, the latest step of the oldest piece first, and waits only if none is ready: where ranks share
 * cores, it does much work before it yields its core. */
#include "collective/host/pipe.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"

#define STEPS 3 /* copy in, reduce, copy out */

/* How far this rank is in a call. */
struct course {
    const struct ash_pipe *pipe;
    size_t count, steps;  /* pieces; steps of each */
    size_t done[STEPS];   /* pieces that have finished each step */
    uint64_t seen[STEPS]; /* what all others were last seen to have reached, for each step */
    bool compared;        /* all ranks make this call */
};

/* The counter on each control block that a step waits for. */
static const size_t awaited[STEPS] = {offsetof(struct ash_control, taken), offsetof(struct ash_control, copied_in),
                                      offsetof(struct ash_control, reduced)};

static const _Atomic uint64_t *counter_of(const struct ash_local *local, size_t rank, size_t step)
{
    ash_assert(rank < local->size);
    return (const void *)((const char *)local->controls[rank] + awaited[step]);
}

/* What the counters of all others must have reached before the next piece of a step: for a bounce buffer, that its last
 * content has been taken. */
static uint64_t needed(const struct course *course, size_t step)
{
    uint64_t number = course->pipe->local->pieces + course->done[step];

    if (step > 0) return number + 1;
    return number < ASH_CONTROL_BOUNCES ? 0 : number - ASH_CONTROL_BOUNCES + 1;
}

/* Wait until all ranks make this call, and compare it. */
static int wait_flags(struct course *course, struct ash_err *err)
{
    struct ash_local *local = course->pipe->local;
    int rc = 0;

    for (size_t r = 0; r < local->size && rc == 0; r++)
        if (r != local->rank) rc = ash_control_wait_flag(local, r, &local->controls[r]->flag, err);
    course->compared = rc == 0;
    return rc;
}

/* The same if all ranks are here already, else nothing. */
static int compare(struct course *course, struct ash_err *err)
{
    const struct ash_local *local = course->pipe->local;

    for (size_t r = 0; r < local->size; r++)
        if (r != local->rank && atomic_load(&local->controls[r]->flag) >> ASH_CONTROL_CHECK_BITS < local->call.number)
            return 0;
    return wait_flags(course, err);
}

/* Is there a piece for this step? */
static bool is_open(const struct course *course, size_t step)
{
    return course->done[step] < (step == 0 ? course->count : course->done[step - 1]);
}

/* Are all others far enough for it? */
static bool is_ready(struct course *course, size_t step)
{
    const struct ash_local *local = course->pipe->local;
    uint64_t need = needed(course, step), least = UINT64_MAX;

    if (course->seen[step] >= need) return true;
    for (size_t r = 0; r < local->size; r++) {
        uint64_t reached =
            r == local->rank ? UINT64_MAX : atomic_load_explicit(counter_of(local, r, step), memory_order_acquire);

        if (reached < least) least = reached;
    }
    course->seen[step] = least;
    return least >= need;
}

static void do_step(struct course *course, size_t step)
{
    const struct ash_pipe *pipe = course->pipe;
    struct ash_local *local = pipe->local;
    struct ash_control *own = local->controls[local->rank];
    uint64_t number = local->pieces + course->done[step];
    size_t first = course->done[step] * pipe->piece_bytes, left = pipe->size_bytes - first,
           bytes = left < pipe->piece_bytes ? left : pipe->piece_bytes, slot = number % ASH_CONTROL_BOUNCES;
    bool last = step + 1 == course->steps;

    ash_assert(course->done[step] < course->count &&
               (step == 0 || course->done[step] < course->done[step - 1])); /* no step overtakes the one before */
    if (step == 0 && pipe->copy_in != NULL) pipe->copy_in(pipe, first, bytes, own->bounce[slot]);
    if (step == 1) pipe->reduce(pipe, first, bytes, slot);
    if (step == 2) pipe->copy_out(pipe, first, bytes, slot);
    course->done[step]++;
    ash_control_signal(local, last ? &own->taken : step == 0 ? &own->copied_in : &own->reduced, number + 1);
}

/* Wait for what the oldest piece needs: the rank that it waits for does not wait for this one. */
static int wait_on(const struct course *course, struct ash_err *err)
{
    struct ash_local *local = course->pipe->local;
    size_t step = course->steps - 1;
    int rc = 0;

    while (step > 0 && !is_open(course, step))
        step--;
    for (size_t r = 0; r < local->size && rc == 0; r++)
        if (r != local->rank) rc = ash_control_wait(local, r, counter_of(local, r, step), needed(course, step), err);
    return rc;
}

/* The step to do next, or the number of steps: none can be done now. */
static size_t choose_step(struct course *course)
{
    for (size_t step = course->steps; step-- > 0;)
        if (is_open(course, step) && (step == 0 || course->compared) && is_ready(course, step)) return step;
    return course->steps;
}

int ash_pipe_run(const struct ash_pipe *pipe, struct ash_err *err)
{
    struct ash_local *local = pipe->local;
    struct course course = {.pipe = pipe,
                            .count = ash_div_up(pipe->size_bytes, pipe->piece_bytes),
                            .steps = pipe->copy_out != NULL ? STEPS : STEPS - 1};
    int rc = 0;

    ash_assert(pipe->piece_bytes > 0 && pipe->piece_bytes <= ASH_CONTROL_BOUNCE_BYTES && pipe->reduce != NULL);
    ash_control_signal(local, &local->controls[local->rank]->flag, local->check);
    while (rc == 0 && (!course.compared || course.done[course.steps - 1] < course.count)) {
        size_t step = choose_step(&course);

        if (step < course.steps)
            do_step(&course, step);
        else if (course.compared)
            rc = wait_on(&course, err);
        else
            rc = wait_flags(&course, err);
        if (rc == 0 && !course.compared) rc = compare(&course, err);
    }
    if (rc < 0) return rc;
    local->pieces += course.count;
    if (pipe->copy_out == NULL) atomic_store(&local->controls[local->rank]->reduced, local->pieces);
    return 0;
}

void ash_pipe_copy_in(const struct ash_pipe *pipe, size_t first, size_t bytes, uint8_t *bounce)
{
    memcpy(bounce, pipe->in + first, bytes);
}
