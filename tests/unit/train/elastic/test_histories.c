/* The step boundary keeps its promises over drawn histories of whole runs; and a mistake that is planted against each
 * of them is caught. Held to be true:
 *   agree     ranks of a group take the same action, at the same step, in the same mesh
 *   one side  steps are made by one view at a time
 *   not lost  a run goes on from the last step that was made, as long as processes live that have all of it
 *   logged    every step is followed up once, in order
 *   stops     no step is made after all ranks have decided to stop
 *   ends      every rank comes to an end */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "unit/sanitized.h"
#include "unit/train/elastic/simulate.h"

#if SANITIZED
#define HISTORIES 200
#else
#define HISTORIES 2000
#endif
#define PLANT_HISTORIES 2000 /* the first that shows a mistake ends them */

static void begin_action(struct job *job, struct rank *rank);

static void take(struct job *job, struct rank *rank, const struct ash_elastic_event *event)
{
    if (event->kind == ASH_ELASTIC_DONE) job->did[rank->machine.todo]++;
    ash_elastic_take(&rank->machine, event);
    if (event->kind >= ASH_ELASTIC_DONE) begin_action(job, rank);
}

/* ---- what an action needs ---------------------------------------------------------------------------------------- */

/* The group of a round of the rank's action; false: it has no such round. */
static bool next_group(const struct rank *rank, enum group *group_out)
{
    static const struct {
        enum group group;
        unsigned count;
    } rounds[ASH_ELASTIC_DOS] = {
        [ASH_ELASTIC_STEP] = {GROUP_MESH, 3},      [ASH_ELASTIC_MEET] = {GROUP_MESH, 1},
        [ASH_ELASTIC_WATCH] = {GROUP_MESH, 1},     [ASH_ELASTIC_FOLLOW] = {GROUP_MESH, 1},
        [ASH_ELASTIC_RECORD] = {GROUP_MESH, 1},    [ASH_ELASTIC_HAND_OVER] = {GROUP_ALL, 3},
        [ASH_ELASTIC_GROW] = {GROUP_ALL, 1},       [ASH_ELASTIC_TRANSFER] = {GROUP_ALL, 4},
        [ASH_ELASTIC_RELOAD] = {GROUP_ALL, 2},     [ASH_ELASTIC_AGREE] = {GROUP_MESH, 1},
        [ASH_ELASTIC_TAKE_UP] = {GROUP_MESH, 1},   [ASH_ELASTIC_FEED] = {GROUP_ALL, 1},
        [ASH_ELASTIC_SAVE_LAST] = {GROUP_MESH, 1}, [ASH_ELASTIC_FINISH] = {GROUP_MESH, 1},
    };
    const struct ash_elastic *machine = &rank->machine;
    unsigned count = rounds[machine->todo].count;

    *group_out = rounds[machine->todo].group;
    if (machine->todo == ASH_ELASTIC_FOLLOW) count = machine->due.check || machine->due.hash;
    if (machine->todo == ASH_ELASTIC_RECORD) count = machine->due.save;
    if (machine->todo == ASH_ELASTIC_STEP && rank->round == count && machine->growth == ASH_ELASTIC_GROWTH_OPEN) {
        *group_out = GROUP_ALL;
        count++;
    }
    return rank->round < count;
}

static void lose(struct job *job, struct rank *rank)
{
    struct ash_elastic_event event = {.kind = ASH_ELASTIC_LOSS, .is_told = rank->is_told};

    if (rank->machine.todo == ASH_ELASTIC_STEP && rank->at > (int64_t)rank->machine.last)
        event.step = (uint64_t)rank->at;
    if (rank->machine.todo == ASH_ELASTIC_TRANSFER) event.step = job->plant == PLANT_LATE ? 0 : rank->finished;
    if (rank->machine.todo == ASH_ELASTIC_HAND_OVER && rank->round == 2) event.kind = ASH_ELASTIC_DONE;
    take(job, rank, &event);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void step_round(struct rank *rank)
{
    if (rank->round == 0) rank->phase = PHASE_SUMMED;
    if (rank->round == 1) {
        rank->phase = PHASE_UPDATED;
        rank->norm_step = rank->at + 1;
    }
    if (rank->round != 2) return;
    rank->phase = PHASE_NONE;
    hold(rank, rank->machine.rank, rank->at + 1, rank->machine.mesh_ranks, false);
}

/* As in train/trainer_recover.c: a rank with all sums finishes the step, if any rank knows its norm. */
static void finish_step(struct job *job, struct rank *rank, const struct round *round)
{
    if (rank->phase == PHASE_SUMMED && round->norm_step == rank->at + 1) rank->phase = PHASE_UPDATED;
    if (rank->phase == PHASE_UPDATED) {
        for (size_t p = 0; p < PARTS; p++)
            if (has_part(rank->place, rank->old_mesh, p, true) && rank->parts[p] == rank->at)
                rank->parts[p] = rank->at + 1;
        rank->at++;
        rank->finished = (uint64_t)rank->at;
        make(job, rank, rank->at);
        draw_death(job);
    }
    rank->phase = PHASE_NONE;
}

static bool transfer_round(struct job *job, struct rank *rank, const struct round *round)
{
    struct ash_elastic_event missing = {.kind = ASH_ELASTIC_MISSING};

    if (rank->round == 0) finish_step(job, rank, round);
    if (rank->round == 1 && round->is_missing) {
        take(job, rank, &missing);
        return false;
    }
    if (rank->round == 2) hold(rank, rank->machine.rank, round->newest, round->mesh_ranks, true);
    return true;
}

/* Those that stay get all parts, those that leave keep theirs. */
static void hand_over_round(const struct job *job, struct rank *rank, const struct round *round)
{
    size_t place = 0;

    if (rank->round != 1 || rank->machine.leaves || job->plant == PLANT_EMPTY) return;
    for (size_t r = 0; r < rank->machine.rank; r++)
        place += (round->leaving >> r & 1) == 0;
    hold(rank, place, round->newest, round->mesh_ranks, false);
}

/* The rank is through a round. Returns whether its action goes on. */
static bool end_round(struct job *job, struct rank *rank)
{
    const struct round *round = rank->in;
    struct ash_elastic_event damage = {.kind = ASH_ELASTIC_DAMAGE, .is_refused = round->step % 2 == 0};

    switch (rank->machine.todo) {
    case ASH_ELASTIC_STEP:
        step_round(rank);
        break;
    case ASH_ELASTIC_TRANSFER:
        return transfer_round(job, rank, round);
    case ASH_ELASTIC_RELOAD:
        if (rank->round == 0) forget(rank);
        if (rank->round == 1) hold(rank, rank->machine.rank, round->newest, round->mesh_ranks, false);
        break;
    case ASH_ELASTIC_GROW:
        hold(rank, rank->machine.rank, round->newest, round->mesh_ranks, false);
        break;
    case ASH_ELASTIC_HAND_OVER:
        hand_over_round(job, rank, round);
        break;
    case ASH_ELASTIC_FOLLOW:
        rank->is_damaged = false;
        if (round->is_damage) take(job, rank, &damage);
        return !round->is_damage;
    default:
        break;
    }
    return true;
}

/* ---- the first rank ---------------------------------------------------------------------------------------------- */

static void send_note(struct job *job, struct rank *rank, enum ash_elastic_word word)
{
    const struct ash_elastic *machine = &rank->machine;
    struct note note = {.word = word,
                        .step = machine->at,
                        .kept = machine->kept_ranks,
                        .hands_over = machine->change == ASH_ELASTIC_CHANGE_HAND_OVER};

    if (machine->rank != 0 || (word == ASH_ELASTIC_WORD_OVER && job->plant == PLANT_DEAF)) return;
    for (size_t r = machine->mesh_ranks; r < rank->size; r++) {
        struct rank *spare = member_of(job, rank, r);

        if (spare == NULL || spare->note_count == NOTES_MAX) continue;
        spare->notes[spare->note_count++] = note;
        wake(job, spare, draw_ns(job, 20, 200), WAKE_NOTE);
    }
}

static void save(struct job *job, const struct rank *rank)
{
    if (rank->machine.rank != 0 || rank->at <= job->saved) return;
    job->saved_before = job->saved;
    job->saved = rank->at;
}

/* Returns whether the folder is still this rank's. */
static bool write_log(struct job *job, const struct rank *rank)
{
    int64_t step = (int64_t)rank->machine.last;

    if (rank->machine.rank != 0) return true;
    if (rank->epoch < job->fence) return false;
    if (step > job->logged + 1) violate(job, "logged: step %lld follows step %lld", step, job->logged);
    if (step > job->logged) job->logged = step;
    return true;
}

static void tell_news(struct job *job, struct rank *rank)
{
    size_t joiners = 0, leavers = 0;

    if (rank->is_told) take(job, rank, &(struct ash_elastic_event){.kind = ASH_ELASTIC_STOP});
    if (rank->is_slow) take(job, rank, &(struct ash_elastic_event){.kind = ASH_ELASTIC_SLOW});
    rank->is_slow = false;
    if (rank->machine.rank != 0) return;
    ash_fault_sim_news(job->sim, number_of(job, rank), &joiners, &leavers);
    take(job, rank, &(struct ash_elastic_event){.kind = ASH_ELASTIC_JOIN, .count = (int64_t)joiners});
    take(job, rank, &(struct ash_elastic_event){.kind = ASH_ELASTIC_LEAVE, .count = (int64_t)leavers});
    if (job->wants_stop) take(job, rank, &(struct ash_elastic_event){.kind = ASH_ELASTIC_STOP_ALL});
    if (job->wants_ranks > 0)
        take(job, rank, &(struct ash_elastic_event){.kind = ASH_ELASTIC_RESIZE, .count = job->wants_ranks});
    job->wants_ranks = 0;
}

/* ---- one action after the other ---------------------------------------------------------------------------------- */

static void end_action(struct job *job, struct rank *rank)
{
    const struct round *round = rank->in;
    const struct ash_elastic *machine = &rank->machine;
    struct ash_elastic_event event = {.kind = ASH_ELASTIC_DONE, .rank = machine->rank, .ranks = rank->size};

    switch (machine->todo) {
    case ASH_ELASTIC_STEP:
        event.step = (uint64_t)rank->at;
        break;
    case ASH_ELASTIC_MEET:
        event.votes = round->votes;
        if (job->plant == PLANT_ALONE && machine->rank == 0)
            event.votes = ash_elastic_vote(machine, ash_fault_sim_now(job->sim));
        if (round->votes.stop != 0) rank->stops_at = rank->at;
        event.now_ns = ash_fault_sim_now(job->sim);
        break;
    case ASH_ELASTIC_FOLLOW:
        if (!write_log(job, rank)) event.kind = ASH_ELASTIC_FAILURE;
        break;
    case ASH_ELASTIC_RECORD:
        if (machine->due.save) save(job, rank);
        break;
    case ASH_ELASTIC_SAVE_LAST:
        save(job, rank);
        break;
    case ASH_ELASTIC_NOTIFY:
    case ASH_ELASTIC_FINISH:
        send_note(job, rank, machine->word);
        break;
    case ASH_ELASTIC_ABORT:
        ash_fault_sim_abort(job->sim, number_of(job, rank));
        break;
    case ASH_ELASTIC_TRANSFER:
    case ASH_ELASTIC_RELOAD:
    case ASH_ELASTIC_GROW:
        rank->sequence[GROUP_MESH] = rank->sequence[GROUP_ALL] << 16; /* another mesh, another group */
        event.step = (uint64_t)round->newest;
        event.finished = job->plant == PLANT_FORGET ? 0 : rank->finished;
        event.mesh_ranks = round->mesh_ranks;
        event.is_spare = machine->rank >= round->mesh_ranks;
        event.is_growing = machine->todo == ASH_ELASTIC_TRANSFER && round->grows;
        break;
    case ASH_ELASTIC_TAKE_OVER:
        job->fence = rank->epoch;
        event.is_logged = job->logged >= rank->at;
        break;
    case ASH_ELASTIC_AGREE:
        event.claims = round->claims;
        break;
    default:
        break;
    }
    take(job, rank, &event);
}

/* Once in a while ranks get far apart. */
static uint64_t draw_round_ns(struct job *job)
{
    return ash_fault_sim_below(job->sim, 32) == 0 ? draw_ns(job, 300, 40000) : draw_ns(job, 20, 300);
}

/* All have entered: the operation completes, if they reach each other. */
static void try_complete(struct job *job, struct rank *rank)
{
    struct round *round = rank->in;

    for (size_t r = 0; r < round->members; r++) {
        const struct rank *other = member_of(job, rank, r);

        if (other == NULL) return; /* its loss will be noticed */
        if (ash_fault_sim_reaches(job->sim, number_of(job, rank), number_of(job, other)) &&
            ash_fault_sim_is_awake(job->sim, number_of(job, other)))
            continue;
        wake(job, rank, 10 * MS, WAKE_RETRY);
        return;
    }
    complete(job, rank, round);
    for (size_t r = 0; r < round->members; r++) {
        struct rank *other = member_of(job, rank, r);

        if (other->in == round && !other->is_over) wake(job, other, draw_round_ns(job), WAKE_ROUND);
    }
}

static void advance(struct job *job, struct rank *rank)
{
    struct ash_elastic_event corruption = {.kind = ASH_ELASTIC_CORRUPTION};
    enum group group;

    if (!next_group(rank, &group)) {
        end_action(job, rank);
        return;
    }
    if (rank->is_over) {
        lose(job, rank);
        return;
    }
    if (rank->is_corrupt && rank->machine.todo == ASH_ELASTIC_STEP && rank->round == 1) {
        rank->is_corrupt = false;
        take(job, rank, &corruption);
        return;
    }
    rank->in = find_round(job, rank, group);
    check_agreement(job, rank, rank->in);
    bring(job, rank, rank->in);
    rank->in->entered |= 1u << rank->machine.rank;
    rank->sequence[group]++;
    if (rank->in->entered == (1u << rank->in->members) - 1) try_complete(job, rank);
}

static void listen(struct job *job, struct rank *rank)
{
    struct ash_elastic_event event = {.kind = ASH_ELASTIC_DONE, .is_told = rank->is_told};
    struct note note = rank->notes[0];

    if (rank->is_told && !rank->machine.leaves) ash_fault_sim_want_leave(job->sim, number_of(job, rank));
    if (rank->note_count == 0) {
        if (rank->is_over) lose(job, rank);
        return;
    }
    rank->note_count--;
    memmove(rank->notes, rank->notes + 1, rank->note_count * sizeof(note));
    if (rank->at < (int64_t)note.step) forget(rank);
    event.word = note.word;
    event.kept = note.kept;
    event.hands_over = note.hands_over;
    take(job, rank, &event);
}

static void end_rank(struct job *job, struct rank *rank)
{
    const struct ash_elastic *machine = &rank->machine;
    bool is_good = machine->end <= ASH_ELASTIC_END_STOPPED;

    job->ended[machine->end]++;
    if (machine->rank == 0 && is_good && (job->logged != rank->at || job->saved != rank->at))
        violate(job, "ends: at the end step %lld is logged and step %lld is saved", job->logged, job->saved);
    if (machine->end == ASH_ELASTIC_END_FINISHED && machine->rank == 0 && rank->at != STEPS)
        violate(job, "ends: finished at step %lld of %lld", rank->at, STEPS);
    if (machine->end != ASH_ELASTIC_END_LEFT) ash_fault_sim_end(job->sim, number_of(job, rank), !is_good);
}

static void begin_action(struct job *job, struct rank *rank)
{
    enum ash_elastic_do todo = rank->machine.todo;

    rank->serial = ++job->serial;
    rank->round = 0;
    rank->in = NULL;
    if (todo == ASH_ELASTIC_TRANSFER) rank->finished = 0;
    if (todo == ASH_ELASTIC_STEP && rank->machine.growth == ASH_ELASTIC_GROWTH_OPEN)
        send_note(job, rank, ASH_ELASTIC_WORD_FEED);
    if (todo == ASH_ELASTIC_STEP) {
        rank->phase = PHASE_NONE;
        wake(job, rank, draw_ns(job, 60000, 140000), WAKE_ACT);
    } else {
        wake(job, rank, draw_ns(job, 20, 500), WAKE_ACT);
    }
}

static void act(struct job *job, struct rank *rank)
{
    enum ash_elastic_do todo = rank->machine.todo;

    if (todo == ASH_ELASTIC_END)
        end_rank(job, rank);
    else if (todo == ASH_ELASTIC_REFORM)
        ash_fault_sim_reform(job->sim, number_of(job, rank), rank->machine.leaves);
    else if (todo == ASH_ELASTIC_LISTEN)
        listen(job, rank);
    else
        advance(job, rank);
}

/* ---- as an owner of processes ------------------------------------------------------------------------------------ */

static void hear_news(struct job *job, struct rank *rank, enum news news)
{
    if (news == NEWS_STOP) rank->is_told = true;
    if (news == NEWS_STOP_ALL) job->wants_stop = true;
    if (news == NEWS_RESIZE) job->wants_ranks = 1 + (int64_t)ash_fault_sim_below(job->sim, job->ranks);
    if (news == NEWS_CORRUPT) rank->is_corrupt = true;
    if (news == NEWS_DAMAGE) rank->is_damaged = true;
    if (news == NEWS_SLOW) rank->is_slow = true;
    if (news == NEWS_DEATH) ash_fault_sim_end(job->sim, number_of(job, rank), true);
}

static void on_wake(void *ctx, uint32_t process, uint64_t token)
{
    struct job *job = ctx;
    struct rank *rank = &job->seats[process];
    enum wake kind = (enum wake)(token & 0xff);

    if (kind == WAKE_NEWS) {
        hear_news(job, rank, (enum news)(token >> 8));
        return;
    }
    if (!rank->is_in || token >> 8 != rank->serial || rank->machine.state == ASH_ELASTIC_ENDED) {
        if (rank->is_in && token >> 8 == rank->serial && kind == WAKE_ACT) act(job, rank);
        return;
    }
    if (kind == WAKE_ACT && rank->machine.todo == ASH_ELASTIC_MEET) tell_news(job, rank);
    if (kind == WAKE_ACT) act(job, rank);
    if (kind == WAKE_NOTE && rank->machine.todo == ASH_ELASTIC_LISTEN) listen(job, rank);
    if (kind == WAKE_RETRY && rank->is_over)
        lose(job, rank);
    else if (kind == WAKE_RETRY)
        try_complete(job, rank);
    if (kind == WAKE_OVER && (rank->in != NULL || rank->machine.todo == ASH_ELASTIC_LISTEN)) lose(job, rank);
    if (kind == WAKE_ROUND) {
        if (!end_round(job, rank)) return;
        rank->round++;
        advance(job, rank);
    }
}

static void on_begin(void *ctx, struct ash_sim *sim, uint32_t process)
{
    struct job *job = ctx;
    struct rank *rank = &job->seats[process];

    job->sim = sim;
    *rank = (struct rank){.norm_step = -1, .stops_at = -1};
    forget(rank);
}

/* The first view, a later one, or the first of a process that has joined. */
static void on_started(void *ctx, uint32_t process, const struct ash_view *view, size_t number)
{
    static const struct ash_elastic_opts opts = {
        .steps = STEPS, .save_every = 7, .valid_every = -1, .check_every = 3, .min_ranks = 1, .replaces_slow = true};
    struct job *job = ctx;
    struct rank *rank = &job->seats[process];

    rank->proposal = view->proposal;
    rank->epoch = view->epoch;
    rank->size = view->size;
    rank->is_over = false;
    rank->note_count = 0;
    rank->sequence[0] = rank->sequence[1] = 0;
    for (size_t r = 0; r < view->size; r++)
        rank->slots[r] = ash_fault_sim_find(job->sim, view->members[r].id);
    if (rank->is_in) {
        take(job, rank, &(struct ash_elastic_event){.kind = ASH_ELASTIC_DONE, .rank = number, .ranks = view->size});
        return;
    }
    rank->is_in = true;
    if (view->proposal == 1) {
        ash_elastic_start(&rank->machine, &opts, 0, number, view->size, job->wanted);
        hold(rank, number, 0, job->wanted, false);
    } else {
        ash_elastic_start_joining(&rank->machine, &opts, number, view->size);
    }
    begin_action(job, rank);
}

static void on_over(void *ctx, uint32_t process)
{
    struct job *job = ctx;
    struct rank *rank = &job->seats[process];

    rank->is_over = true;
    if (rank->is_in) wake(job, rank, draw_ns(job, 0, 3000), WAKE_OVER);
}

/* As it wanted to, or because the others go on without it. Both come back. */
static bool on_removed(void *ctx, uint32_t process)
{
    struct job *job = ctx;
    struct rank *rank = &job->seats[process];
    enum ash_elastic_event_kind kind = rank->machine.leaves ? ASH_ELASTIC_DONE : ASH_ELASTIC_FAILURE;

    if (!rank->is_in || rank->machine.state == ASH_ELASTIC_ENDED) return true;
    ash_elastic_take(
        &rank->machine,
        &(struct ash_elastic_event){.kind = rank->machine.todo == ASH_ELASTIC_REFORM ? kind : ASH_ELASTIC_FAILURE});
    job->ended[rank->machine.end]++;
    if (job->is_calm && !survives(job, rank, job->made, true))
        violate(job, "not lost: process %lld left with all that is there of step %lld", process, job->made);
    rank->is_in = false;
    return ash_fault_sim_below(job->sim, 2) == 0;
}

static void on_died(void *ctx, uint32_t process)
{
    struct job *job = ctx;

    job->seats[process].is_in = false;
}

static bool is_done(void *ctx)
{
    const struct job *job = ctx;

    for (size_t r = 0; r < job->ranks; r++)
        if (job->seats[r].is_in && job->seats[r].machine.state != ASH_ELASTIC_ENDED) return false;
    return true;
}

/* ---- histories --------------------------------------------------------------------------------------------------- */

/* What people and machines do to the run, besides the faults of the virtual network. */
static void draw_news(struct job *job)
{
    for (uint64_t i = ash_fault_sim_below(job->sim, 4); i > 0; i--) {
        enum news news = (enum news)ash_fault_sim_below(job->sim, NEWS_DEATH);
        uint64_t at_ns = draw_ns(job, 100000, 3000000);
        uint32_t process = (uint32_t)ash_fault_sim_below(job->sim, job->ranks);
        bool all = news == NEWS_STOP && ash_fault_sim_below(job->sim, 2) == 0;

        for (uint32_t r = 0; r < job->ranks; r++)
            if (all || r == process) ash_fault_sim_wake(job->sim, r, at_ns, (uint64_t)news << 8 | WAKE_NEWS);
    }
}

static void begin_history(void *ctx, struct ash_sim *sim, uint32_t process)
{
    struct job *job = ctx;

    on_begin(ctx, sim, process);
    if (!job->has_news) draw_news(job);
    job->has_news = true;
}

static const struct ash_fault_sim_owner owner = {.begin = begin_history,
                                                 .started = on_started,
                                                 .over = on_over,
                                                 .removed = on_removed,
                                                 .died = on_died,
                                                 .wake = on_wake,
                                                 .is_done = is_done};

static struct ash_fault_sim_result run_history(struct job *job, uint64_t seed, enum plant plant, unsigned faults)
{
    struct ash_fault_sim_owner own = owner;
    struct ash_fault_sim_opts opts = {
        .ranks = 1 + seed % RANKS_MAX, .per_host = 2, .seed = seed, .faults = faults, .silent_s = 0.6, .owner = &own};
    struct ash_fault_sim_result result;

    *job = (struct job){.ranks = opts.ranks, .plant = plant, .is_calm = faults == 0};
    job->wanted = 1 + (opts.ranks - 1) * (1 + seed / RANKS_MAX % 3) / 3;
    own.ctx = job;
    if (plant == PLANT_SIDES) opts.plant = ASH_FAULT_SIM_PLANT_RIGHT;
    assert_int_equal(ash_fault_sim_run(&opts, &result), 0);
    return result;
}

#define FAULTS (ASH_FAULT_SIM_ALL & ~(unsigned)ASH_FAULT_SIM_LEAVE)

static void test_drawn_histories(void **state)
{
    static struct job job;
    size_t did[ASH_ELASTIC_DOS] = {0}, ended[ASH_ELASTIC_END_TRIES + 1] = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        struct ash_fault_sim_result result = run_history(&job, seed, PLANT_NONE, seed % 8 == 0 ? 0 : FAULTS);

        if (!result.is_good) fail_msg("seed %llu: %s", (unsigned long long)seed, result.violation);
        for (size_t i = 0; i < ASH_ELASTIC_DOS; i++)
            did[i] += job.did[i];
        for (size_t i = 0; i <= ASH_ELASTIC_END_TRIES; i++)
            ended[i] += job.ended[i];
    }
    for (size_t i = 0; i < ASH_ELASTIC_END; i++) /* every action has been taken */
        if (did[i] == 0) fail_msg("no rank did %s", ash_elastic_do_name((enum ash_elastic_do)i));
    assert_true(ended[ASH_ELASTIC_END_FINISHED] > 0 && ended[ASH_ELASTIC_END_STOPPED] > 0 &&
                ended[ASH_ELASTIC_END_LEFT] > 0);
}

static void expect_caught(enum plant plant, const char *promise)
{
    static struct job job;

    for (uint64_t seed = 1; seed <= PLANT_HISTORIES; seed++) {
        struct ash_fault_sim_result result = run_history(&job, seed, plant, plant == PLANT_EMPTY ? 0 : FAULTS);

        if (!result.is_good && strncmp(result.violation, promise, strlen(promise)) == 0) return;
    }
    fail_msg("mistake %d was not caught", plant);
}

static void test_plants(void **state)
{
    (void)state;
    expect_caught(PLANT_SIDES, "one side");
    expect_caught(PLANT_FORGET, "logged");
    expect_caught(PLANT_LATE, "logged");
    expect_caught(PLANT_REDO, "not lost");
    expect_caught(PLANT_EMPTY, "not lost");
    expect_caught(PLANT_ALONE, "agree");
    expect_caught(PLANT_DEAF, "settled");
    expect_caught(PLANT_DEFER, "stops");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn_histories), cmocka_unit_test(test_plants)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
