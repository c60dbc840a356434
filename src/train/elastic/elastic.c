/* elastic: from the result of an action to the next one. Each action has a function for its success; an error is
 * handled alike for all of them. */
#include "train/elastic/elastic_priv.h"

#include "base/assert.h"

static void go(struct ash_elastic *machine, enum ash_elastic_state state, enum ash_elastic_do todo)
{
    machine->state = state;
    machine->todo = todo;
}

static void end(struct ash_elastic *machine, enum ash_elastic_end how)
{
    machine->end = how;
    go(machine, ASH_ELASTIC_ENDED, ASH_ELASTIC_END);
}

/* The run is over for the mesh. */
static void drain(struct ash_elastic *machine, bool is_stopped)
{
    machine->is_stopped = is_stopped;
    go(machine, ASH_ELASTIC_DRAINING, ASH_ELASTIC_SAVE_LAST);
}

/* A rank of the mesh continues: with the follow-up of the last step, else with the next one. */
static void run(struct ash_elastic *machine)
{
    if (machine->is_open)
        go(machine, ASH_ELASTIC_RUNNING, ASH_ELASTIC_MEET);
    else if (machine->ends_here || machine->at >= machine->opts.steps)
        drain(machine, machine->ends_here);
    else
        go(machine, ASH_ELASTIC_RUNNING, ASH_ELASTIC_STEP);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* The step has been made, whatever has failed after it. */
static void hold_step(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    if (event->step <= machine->last) return;
    machine->at = machine->last = event->step;
    machine->is_open = true;
}

static void done_step(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    hold_step(machine, event);
    machine->tries = 0;
    if (machine->growth == ASH_ELASTIC_GROWTH_OPEN) machine->growth = ASH_ELASTIC_GROWTH_FED;
    run(machine);
}

static void done_meet(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    machine->due = (struct ash_elastic_due){0};
    ash_elastic_decide(machine, event);
    machine->todo = ASH_ELASTIC_WATCH;
}

static void done_watch(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    (void)event;
    ash_elastic_plan_due(machine);
    machine->todo = ASH_ELASTIC_FOLLOW;
}

static void done_follow(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    (void)event;
    machine->is_open = false;
    if (machine->gives_up)
        end(machine, ASH_ELASTIC_END_FAILED);
    else if (machine->due.last || machine->due.stop)
        drain(machine, machine->due.stop);
    else
        machine->todo = ASH_ELASTIC_RECORD;
}

static void done_record(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    static const enum ash_elastic_word words[] = {
        [ASH_ELASTIC_CHANGE_NONE] = ASH_ELASTIC_WORD_STEP,
        [ASH_ELASTIC_CHANGE_REFORM] = ASH_ELASTIC_WORD_CHANGE,
        [ASH_ELASTIC_CHANGE_HAND_OVER] = ASH_ELASTIC_WORD_CHANGE,
        [ASH_ELASTIC_CHANGE_GROW] = ASH_ELASTIC_WORD_GROW,
    };

    ash_assert((size_t)machine->change < ASH_COUNT(words));
    (void)event;
    machine->word = words[machine->change];
    machine->todo = ASH_ELASTIC_NOTIFY;
}

/* ---- ranks change ------------------------------------------------------------------------------------------------ */

/* At a step boundary, in the mesh and beyond it. */
static void begin_change(struct ash_elastic *machine)
{
    enum ash_elastic_state moves = machine->leaves ? ASH_ELASTIC_LEAVING : ASH_ELASTIC_TRANSFERRING;

    if (machine->change == ASH_ELASTIC_CHANGE_GROW)
        go(machine, ASH_ELASTIC_TRANSFERRING, ASH_ELASTIC_GROW);
    else if (machine->change == ASH_ELASTIC_CHANGE_HAND_OVER)
        go(machine, moves, ASH_ELASTIC_HAND_OVER);
    else
        go(machine, machine->leaves ? ASH_ELASTIC_LEAVING : ASH_ELASTIC_REFORMING, ASH_ELASTIC_REFORM);
}

static void done_notify(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    (void)event;
    if (machine->word == ASH_ELASTIC_WORD_RELOAD)
        go(machine, ASH_ELASTIC_TRANSFERRING, ASH_ELASTIC_RELOAD);
    else if (machine->change == ASH_ELASTIC_CHANGE_NONE)
        run(machine);
    else
        begin_change(machine);
}

static void done_hand_over(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    (void)event;
    go(machine, machine->leaves ? ASH_ELASTIC_LEAVING : ASH_ELASTIC_REFORMING, ASH_ELASTIC_REFORM);
}

static void done_abort(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    (void)event;
    go(machine, ASH_ELASTIC_REFORMING, ASH_ELASTIC_REFORM);
}

/* How many ranks the next mesh has, spares included. */
static void count_ranks(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    ash_assert(event->ranks == 0 || event->rank < event->ranks);
    machine->rank = event->rank;
    machine->ranks = event->ranks;
    machine->is_too_few = (int64_t)event->ranks < machine->opts.min_ranks;
}

static void done_reform(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    machine->leaves = false;
    machine->growth = ASH_ELASTIC_GROWTH_NONE;
    count_ranks(machine, event);
    if (event->ranks == 0)
        end(machine, ASH_ELASTIC_END_LEFT);
    else
        go(machine, ASH_ELASTIC_TRANSFERRING, ASH_ELASTIC_TRANSFER);
}

/* ---- the next mesh ----------------------------------------------------------------------------------------------- */

/* The state is there, with these many steps. A checkpoint may have fewer than this rank had made. */
static void done_transfer(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    bool is_new_first = !machine->is_first && event->rank == 0;

    if (event->finished > machine->last) {
        machine->last = event->finished;
        machine->is_open = true;
    }
    machine->at = event->step;
    machine->lost = event->step < machine->last ? machine->last - event->step : 0;
    if (machine->lost > 0) machine->last = 0;
    if (machine->lost > 0 || machine->last != machine->at) machine->is_open = false;
    count_ranks(machine, event);
    machine->mesh_ranks = event->mesh_ranks;
    machine->growth = event->is_growing ? ASH_ELASTIC_GROWTH_OPEN : ASH_ELASTIC_GROWTH_NONE;
    machine->change = ASH_ELASTIC_CHANGE_NONE;
    machine->is_refused = machine->ends_here = false;
    machine->due = (struct ash_elastic_due){0};
    if (event->is_spare)
        go(machine, ASH_ELASTIC_SPARE, ASH_ELASTIC_LISTEN);
    else
        go(machine, ASH_ELASTIC_TRANSFERRING, is_new_first ? ASH_ELASTIC_TAKE_OVER : ASH_ELASTIC_AGREE);
}

/* The lost first rank may not have logged the last step: it is open again. */
static void done_take_over(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    machine->is_first = true;
    machine->is_open = machine->is_open || !event->is_logged;
    machine->wanted_ranks = event->wanted_ranks;
    machine->resizes = event->resizes;
    machine->todo = ASH_ELASTIC_AGREE;
}

static void done_agree(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    size_t source;

    machine->is_open = ash_elastic_is_claimed(&event->claims, machine->mesh_ranks, &source);
    if (machine->is_open) machine->last = machine->at;
    machine->ends_here = event->claims.goes_on == 0 || event->claims.stops != 0 ||
                         (machine->is_too_few && machine->at < machine->opts.steps);
    machine->todo = ASH_ELASTIC_TAKE_UP;
}

static void done_take_up(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    (void)event;
    run(machine);
}

/* ---- spares, the end --------------------------------------------------------------------------------------------- */

/* CHANGE says which ranks leave; a spare that was stopped leaves with them. */
static void done_listen(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    static const enum ash_elastic_change changes[] = {ASH_ELASTIC_CHANGE_REFORM, ASH_ELASTIC_CHANGE_HAND_OVER};

    ash_assert((size_t)event->hands_over < ASH_COUNT(changes));
    machine->leaves = event->is_told;
    machine->tries = 0;
    machine->kept_ranks = event->kept;
    if (event->word == ASH_ELASTIC_WORD_FEED) {
        machine->todo = ASH_ELASTIC_FEED;
    } else if (event->word == ASH_ELASTIC_WORD_OVER) {
        end(machine, machine->is_too_few ? ASH_ELASTIC_END_TOO_FEW : ASH_ELASTIC_END_FINISHED);
    } else if (event->word == ASH_ELASTIC_WORD_RELOAD) {
        machine->leaves = false;
        go(machine, ASH_ELASTIC_TRANSFERRING, ASH_ELASTIC_RELOAD);
    } else if (event->word == ASH_ELASTIC_WORD_GROW) {
        machine->leaves = false;
        machine->change = ASH_ELASTIC_CHANGE_GROW;
        begin_change(machine);
    } else if (event->word == ASH_ELASTIC_WORD_CHANGE) {
        machine->leaves = event->is_told || (int64_t)machine->rank >= event->kept;
        machine->change = changes[event->hands_over];
        begin_change(machine);
    }
}

static void done_feed(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    (void)event;
    machine->growth = ASH_ELASTIC_GROWTH_FED;
    machine->todo = ASH_ELASTIC_LISTEN;
}

static void done_save_last(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    (void)event;
    machine->word = ASH_ELASTIC_WORD_OVER;
    machine->todo = ASH_ELASTIC_FINISH;
}

static void done_finish(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    (void)event;
    if (machine->is_stopped)
        end(machine, machine->is_too_few ? ASH_ELASTIC_END_TOO_FEW : ASH_ELASTIC_END_STOPPED);
    else
        end(machine, ASH_ELASTIC_END_FINISHED);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void (*const done[ASH_ELASTIC_DOS])(struct ash_elastic *machine, const struct ash_elastic_event *event) = {
    [ASH_ELASTIC_STEP] = done_step,           [ASH_ELASTIC_MEET] = done_meet,
    [ASH_ELASTIC_WATCH] = done_watch,         [ASH_ELASTIC_FOLLOW] = done_follow,
    [ASH_ELASTIC_RECORD] = done_record,       [ASH_ELASTIC_NOTIFY] = done_notify,
    [ASH_ELASTIC_HAND_OVER] = done_hand_over, [ASH_ELASTIC_GROW] = done_transfer,
    [ASH_ELASTIC_ABORT] = done_abort,         [ASH_ELASTIC_REFORM] = done_reform,
    [ASH_ELASTIC_TRANSFER] = done_transfer,   [ASH_ELASTIC_RELOAD] = done_transfer,
    [ASH_ELASTIC_TAKE_OVER] = done_take_over, [ASH_ELASTIC_AGREE] = done_agree,
    [ASH_ELASTIC_TAKE_UP] = done_take_up,     [ASH_ELASTIC_LISTEN] = done_listen,
    [ASH_ELASTIC_FEED] = done_feed,           [ASH_ELASTIC_SAVE_LAST] = done_save_last,
    [ASH_ELASTIC_FINISH] = done_finish,
};

/* A spare may leave at any loss. The shard of a rank of the mesh may be needed now; it can try again later. */
static void lose(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    bool is_spare = machine->state == ASH_ELASTIC_SPARE;

    hold_step(machine, event);
    machine->leaves = is_spare && (machine->leaves || event->is_told);
    if (++machine->tries > ASH_ELASTIC_TRIES_MAX)
        end(machine, ASH_ELASTIC_END_TRIES);
    else
        go(machine, ASH_ELASTIC_REFORMING, ASH_ELASTIC_REFORM);
}

/* All ranks load a checkpoint. Those of the mesh have found why; the spares are notified. */
static void reload(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    bool has_spares = event->kind == ASH_ELASTIC_DAMAGE && machine->ranks > machine->mesh_ranks;

    hold_step(machine, event);
    machine->leaves = false;
    machine->is_refused = event->is_refused;
    machine->word = ASH_ELASTIC_WORD_RELOAD;
    go(machine, ASH_ELASTIC_TRANSFERRING, has_spares ? ASH_ELASTIC_NOTIFY : ASH_ELASTIC_RELOAD);
}

static void take_error(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    if (machine->is_too_few && event->kind > ASH_ELASTIC_CORRUPTION) { /* they cannot save what they have */
        end(machine, ASH_ELASTIC_END_TOO_FEW);
        return;
    }
    switch (event->kind) {
    case ASH_ELASTIC_LOSS:
        lose(machine, event);
        break;
    case ASH_ELASTIC_CORRUPTION:
        hold_step(machine, event);
        machine->leaves = false;
        machine->corruptions++;
        if (machine->corruptions > ASH_ELASTIC_CORRUPTIONS_MAX)
            end(machine, ASH_ELASTIC_END_CORRUPT);
        else
            machine->todo = ASH_ELASTIC_ABORT;
        break;
    case ASH_ELASTIC_DAMAGE:
    case ASH_ELASTIC_MISSING:
        reload(machine, event);
        break;
    default:
        end(machine, ASH_ELASTIC_END_FAILED);
        break;
    }
}

static void take_news(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    struct ash_elastic_votes *news = &machine->news;

    switch (event->kind) {
    case ASH_ELASTIC_STOP:
        news->told = 1;
        break;
    case ASH_ELASTIC_STOP_ALL:
        news->stop = 1;
        break;
    case ASH_ELASTIC_JOIN:
        news->joiners = event->count;
        break;
    case ASH_ELASTIC_LEAVE:
        news->leavers = event->count;
        break;
    case ASH_ELASTIC_RESIZE:
        if (event->count >= machine->opts.min_ranks) news->wanted = event->count; /* fewer would end the run */
        break;
    case ASH_ELASTIC_SLOW:
        news->slow = 1;
        break;
    default: /* ASH_ELASTIC_SAVE_DUE */
        machine->due.save = true;
        break;
    }
}

void ash_elastic_take(struct ash_elastic *machine, const struct ash_elastic_event *event)
{
    ash_assert(machine->state != ASH_ELASTIC_ENDED);
    if (event->kind < ASH_ELASTIC_DONE)
        take_news(machine, event);
    else if (event->kind == ASH_ELASTIC_DONE)
        done[machine->todo](machine, event);
    else
        take_error(machine, event);
    ash_assert((machine->state == ASH_ELASTIC_ENDED) == (machine->todo == ASH_ELASTIC_END));
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

void ash_elastic_start(struct ash_elastic *machine, const struct ash_elastic_opts *opts, uint64_t step, size_t rank,
                       size_t ranks, size_t mesh_ranks)
{
    ash_assert(rank < ranks && mesh_ranks > 0 && mesh_ranks <= ranks);
    *machine = (struct ash_elastic){.opts = *opts,
                                    .rank = rank,
                                    .ranks = ranks,
                                    .mesh_ranks = mesh_ranks,
                                    .kept_ranks = (int64_t)ranks,
                                    .is_first = rank == 0};
    if (rank >= mesh_ranks) {
        go(machine, ASH_ELASTIC_SPARE, ASH_ELASTIC_LISTEN);
        return;
    }
    machine->at = machine->last = step;
    run(machine);
}

void ash_elastic_start_joining(struct ash_elastic *machine, const struct ash_elastic_opts *opts, size_t rank,
                               size_t ranks)
{
    ash_assert(rank < ranks);
    *machine = (struct ash_elastic){.opts = *opts, .rank = rank, .ranks = ranks, .kept_ranks = (int64_t)ranks};
    go(machine, ASH_ELASTIC_JOINING, ASH_ELASTIC_TRANSFER);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

const char *ash_elastic_state_name(enum ash_elastic_state state)
{
    static const char *const names[ASH_ELASTIC_STATES] = {"running",      "spare",   "joining",  "re-forming",
                                                          "transferring", "leaving", "draining", "ended"};

    ash_assert((size_t)state < ASH_COUNT(names));
    return names[state];
}

const char *ash_elastic_do_name(enum ash_elastic_do todo)
{
    static const char *const names[ASH_ELASTIC_DOS] = {
        "step",     "meet",   "watch",     "follow", "record",  "notify", "hand over", "grow",      "abort",  "re-form",
        "transfer", "reload", "take over", "agree",  "take up", "listen", "feed",      "save last", "finish", "end"};

    ash_assert((size_t)todo < ASH_COUNT(names));
    return names[todo];
}
