/* simulate - whole runs of ranks whose step boundaries are machines (train/elastic) over machines of membership
 * (chaos/simulate), under a virtual clock: steps, saves, losses, joins, stops, resizes, corruption and damage in
 * drawn histories. Memory is modelled: which rank has which part of the state, of which step. */
#ifndef ASH_TESTS_ELASTIC_SIMULATE_H
#define ASH_TESTS_ELASTIC_SIMULATE_H

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chaos/simulate/simulate.h"
#include "train/elastic/elastic.h"

#define RANKS_MAX 8
#define PARTS 12 /* of the state */
#define ROUNDS_MAX 64
#define NOTES_MAX 8
#define STEPS 24
#define MS 1000000ull

/* A mistake on purpose, to see that it is caught. */
enum plant {
    PLANT_NONE,
    PLANT_SIDES,  /* every side of a cut may go on */
    PLANT_FORGET, /* a step that was finished on the way is not reported */
    PLANT_LATE,   /* nor one whose transfer fails afterwards */
    PLANT_REDO,   /* the last step is made again */
    PLANT_EMPTY,  /* ranks leave without handing over */
    PLANT_ALONE,  /* the first rank follows its own vote, not the sum */
    PLANT_DEAF,   /* spares do not hear that the run is over */
    PLANT_DEFER,  /* a decision to stop is forgotten when a rank is lost */
    PLANTS
};

enum phase { PHASE_NONE, PHASE_SUMMED, PHASE_UPDATED };
enum group { GROUP_MESH, GROUP_ALL };
enum wake { WAKE_ACT, WAKE_ROUND, WAKE_RETRY, WAKE_OVER, WAKE_NOTE, WAKE_NEWS };
enum news { NEWS_STOP, NEWS_STOP_ALL, NEWS_RESIZE, NEWS_CORRUPT, NEWS_DAMAGE, NEWS_SLOW, NEWS_DEATH };

struct note {
    enum ash_elastic_word word;
    uint64_t step;
    int64_t kept;
    bool hands_over;
};

/* One process. */
struct rank {
    struct ash_elastic machine;
    bool is_in;   /* it has a machine */
    bool is_over; /* its view */
    bool is_told, is_corrupt, is_damaged, is_slow;
    uint64_t proposal; /* of its view */
    uint32_t epoch;
    size_t size;
    uint32_t slots[RANKS_MAX]; /* processes of the view; UINT32_MAX: ended */
    uint64_t serial;           /* of the wake that is waited for */
    unsigned round;            /* of the action */
    uint64_t sequence[2];      /* rounds of both groups that it has entered */
    int64_t parts[PARTS];      /* the newest step that it has of each; -1: nothing */
    int64_t at;                /* steps of its state; -1: none */
    size_t old_mesh;           /* ranks of the mesh that this is of, */
    size_t place;              /* and its place there */
    enum phase phase;
    int64_t norm_step;
    int64_t stops_at;  /* the step at which all have decided to stop, as it knows; -1: they have not */
    uint64_t finished; /* in this TRANSFER; 0: none */
    struct note notes[NOTES_MAX];
    size_t note_count;
    struct round *in; /* that it has entered */
};

/* A collective operation that ranks of a view enter. */
struct round {
    uint64_t proposal, sequence;
    enum group group;
    enum ash_elastic_do todo;
    unsigned number;
    size_t members;   /* ranks below this */
    uint32_t entered; /* a bit a rank */
    uint64_t step;    /* of all of them */
    uint32_t leaving; /* of all of them, a bit a rank */
    struct ash_elastic_votes votes;
    struct ash_elastic_claims claims;
    int64_t newest, norm_step;
    bool is_missing, grows, is_damage;
    size_t mesh_ranks;
};

struct job {
    struct ash_sim *sim;
    struct ash_fault_sim_owner owner;
    size_t ranks, wanted; /* processes, and the mesh that is wanted */
    enum plant plant;
    struct rank seats[RANKS_MAX];
    struct round rounds[ROUNDS_MAX];
    size_t round_next;
    uint64_t serial;
    int64_t made; /* the newest step that a rank has made */
    uint32_t made_epoch;
    int64_t logged, saved, saved_before;
    uint64_t fence; /* epoch of the first rank that has the folder */
    bool wants_stop, has_news;
    int64_t wants_ranks;
    size_t did[ASH_ELASTIC_DOS], ended[ASH_ELASTIC_END_TRIES + 1]; /* counted */
    bool is_calm;                                                  /* nothing is lost, so nothing may be missing */
};

static void violate(struct job *job, const char *format, long long a, long long b)
{
    char text[ASH_FAULT_SIM_TEXT_BYTES];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof(text), format, a, b);
#pragma GCC diagnostic pop
    ash_fault_sim_violate(job->sim, text);
}

static uint32_t number_of(const struct job *job, const struct rank *rank)
{
    return (uint32_t)(rank - job->seats);
}

static void wake(struct job *job, struct rank *rank, uint64_t after_ns, enum wake kind)
{
    ash_fault_sim_wake(job->sim, number_of(job, rank), after_ns, rank->serial << 8 | kind);
}

static uint64_t draw_ns(struct job *job, uint64_t from_us, uint64_t to_us)
{
    return 1000 * (from_us + ash_fault_sim_below(job->sim, to_us - from_us + 1));
}

/* Another loss, at a moment that is worth it. */
static void draw_death(struct job *job)
{
    uint32_t process = (uint32_t)ash_fault_sim_below(job->sim, job->ranks);

    if (job->is_calm || ash_fault_sim_below(job->sim, 2) == 0) return;
    ash_fault_sim_wake(job->sim, process, draw_ns(job, 0, 1000), (uint64_t)NEWS_DEATH << 8 | WAKE_NEWS);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Does this rank of the mesh update a part, or hold the copy of the rank after it? */
static bool has_part(size_t place, size_t mesh_ranks, size_t part, bool with_copies)
{
    size_t owner = part * mesh_ranks / PARTS;

    return place < mesh_ranks && (owner == place || (with_copies && owner == (place + 1) % mesh_ranks));
}

/* The rank has the state of a step in this place of a mesh, with copies. keeps: without them, but what it had before
 * stays until the next step is made. */
static void hold(struct rank *rank, size_t place, int64_t step, size_t mesh_ranks, bool keeps)
{
    bool with_copies = !keeps;

    if (place < mesh_ranks) rank->at = step;
    rank->old_mesh = mesh_ranks;
    rank->place = place;
    for (size_t p = 0; p < PARTS; p++) {
        if (has_part(place, mesh_ranks, p, with_copies))
            rank->parts[p] = step;
        else if (!keeps)
            rank->parts[p] = -1;
    }
}

/* What is in memory counts for nothing any more. */
static void forget(struct rank *rank)
{
    rank->at = -1;
    memset(rank->parts, -1, sizeof(rank->parts));
}

static bool is_living(const struct job *job, const struct rank *rank)
{
    return rank->is_in && rank->machine.state != ASH_ELASTIC_ENDED &&
           ash_fault_sim_is_awake(job->sim, number_of(job, rank));
}

/* Does one of them have this part of a step: the members of the rank's view; is_outside: other processes that live? */
static bool is_held(const struct job *job, const struct rank *from, size_t part, int64_t step, bool is_outside)
{
    for (size_t r = 0; r < job->ranks; r++) {
        const struct rank *rank = &job->seats[r];
        bool is_there = is_outside ? is_living(job, rank) : rank->is_in && rank->proposal == from->proposal;

        if (is_there && rank->parts[part] >= step) return true;
    }
    return false;
}

/* Do they have all of it? */
static bool survives(const struct job *job, const struct rank *from, int64_t step, bool is_outside)
{
    for (size_t p = 0; p < PARTS; p++)
        if (!is_held(job, from, p, step, is_outside)) return false;
    return true;
}

/* A view goes on from this step: is a later one lost that could have been kept? */
static void check_not_lost(struct job *job, const struct rank *rank, int64_t step)
{
    if (step < job->made && survives(job, rank, job->made, false))
        violate(job, "not lost: the run goes on from step %lld, but step %lld was made", step, job->made);
    if (step < job->made) job->made = step;
    if (step < job->logged) job->logged = step;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* The member of a round's view with this rank, if it is still in it; NULL: it is not. */
static struct rank *member_of(struct job *job, const struct rank *rank, size_t r)
{
    uint32_t slot = rank->slots[r];
    struct rank *other = slot != UINT32_MAX ? &job->seats[slot] : NULL;

    return other != NULL && other->is_in && other->proposal == rank->proposal ? other : NULL;
}

static struct round *find_round(struct job *job, const struct rank *rank, enum group group)
{
    uint64_t sequence = rank->sequence[group];
    size_t members = group == GROUP_MESH ? rank->machine.mesh_ranks : rank->size;
    struct round *round;

    for (size_t i = 0; i < ROUNDS_MAX; i++) {
        round = &job->rounds[i];
        if (round->proposal == rank->proposal && round->group == group && round->sequence == sequence) return round;
    }
    round = &job->rounds[job->round_next++ % ROUNDS_MAX];
    *round = rank->in != NULL ? *rank->in : (struct round){.newest = -1, .norm_step = -1}; /* of the same action */
    round->proposal = rank->proposal;
    round->sequence = sequence;
    round->group = group;
    round->todo = rank->machine.todo;
    round->number = rank->round;
    round->members = members;
    round->step = rank->machine.at;
    round->entered = 0;
    return round;
}

/* Rule 1: all ranks do the same, at the same step, in the same mesh. */
static void check_agreement(struct job *job, const struct rank *rank, const struct round *round)
{
    const struct ash_elastic *machine = &rank->machine;
    size_t members = round->group == GROUP_MESH ? machine->mesh_ranks : rank->size;
    bool feeds = (round->todo == ASH_ELASTIC_STEP && machine->todo == ASH_ELASTIC_FEED) ||
                 (round->todo == ASH_ELASTIC_FEED && machine->todo == ASH_ELASTIC_STEP);

    if (!feeds && (round->todo != machine->todo || round->number != rank->round))
        violate(job, "agree: a rank does %lld while another does %lld", (long long)machine->todo,
                (long long)round->todo);
    if (round->members != members)
        violate(job, "agree: a rank has a mesh of %lld while another has %lld", (long long)members,
                (long long)round->members);
    if (round->group == GROUP_MESH && round->step != machine->at)
        violate(job, "agree: a rank is at step %lld while another is at %lld", (long long)machine->at,
                (long long)round->step);
}

static struct ash_elastic_votes add_votes(struct ash_elastic_votes a, struct ash_elastic_votes b)
{
    int64_t sums[sizeof(a) / sizeof(int64_t)], values[sizeof(a) / sizeof(int64_t)];

    memcpy(sums, &a, sizeof(a));
    memcpy(values, &b, sizeof(b));
    for (size_t i = 0; i < sizeof(a) / sizeof(int64_t); i++)
        sums[i] += values[i];
    memcpy(&a, sums, sizeof(a));
    return a;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What a rank brings to a round. */
static void bring(struct job *job, struct rank *rank, struct round *round)
{
    const struct ash_elastic *machine = &rank->machine;

    if (machine->todo == ASH_ELASTIC_MEET)
        round->votes = add_votes(round->votes, ash_elastic_vote(machine, ash_fault_sim_now(job->sim)));
    if (machine->todo == ASH_ELASTIC_AGREE) {
        struct ash_elastic_claims claims = ash_elastic_claim(machine, machine->rank, rank->is_told);

        if (job->plant == PLANT_DEFER) claims.stops = 0;
        round->claims.is_open = most(round->claims.is_open, claims.is_open);
        round->claims.knows = most(round->claims.knows, claims.knows);
        round->claims.goes_on = most(round->claims.goes_on, claims.goes_on);
        round->claims.stops = most(round->claims.stops, claims.stops);
    }
    round->is_damage = round->is_damage || rank->is_damaged;
    if (machine->leaves) round->leaving |= 1u << machine->rank;
}

/* ---- a transfer: what all ranks of the view have, when all of them have come -------------------------------------- */

static void settle_norm(struct job *job, const struct rank *rank, struct round *round)
{
    for (size_t r = 0; r < rank->size; r++) {
        const struct rank *other = member_of(job, rank, r);

        if (other != NULL) round->norm_step = most(round->norm_step, other->norm_step);
    }
}

static void settle_mesh(struct job *job, const struct rank *rank, struct round *round)
{
    size_t old_mesh = 0, wanted = rank->size < job->wanted ? rank->size : job->wanted;
    bool whole = true;

    round->newest = -1;
    for (size_t r = 0; r < rank->size; r++) {
        const struct rank *other = member_of(job, rank, r);
        bool has = other != NULL && other->at >= 0 && other->place < other->old_mesh;

        if (!has || other->at <= round->newest) continue;
        round->newest = other->at;
        old_mesh = other->old_mesh;
    }
    for (size_t r = 0; r < rank->size; r++) {
        const struct rank *other = member_of(job, rank, r);
        bool is_part = other != NULL && other->at == round->newest && other->place == r && other->old_mesh == old_mesh;

        whole = whole && (r < old_mesh ? is_part : other != NULL && other->at < 0);
    }
    round->grows = whole && old_mesh > 0 && old_mesh < wanted;
    round->mesh_ranks = round->grows ? old_mesh : wanted;
    round->is_missing = round->newest < 0;
    for (size_t p = 0; p < PARTS && !round->is_missing; p++) {
        bool some = false;

        for (size_t r = 0; r < rank->size; r++) {
            const struct rank *other = member_of(job, rank, r);

            some = some || (other != NULL && other->parts[p] == round->newest);
        }
        round->is_missing = !some;
    }
    if (job->plant == PLANT_REDO && round->newest > 0) round->newest--;
}

static size_t mesh_of(const struct job *job, size_t ranks)
{
    return ranks < job->wanted ? ranks : job->wanted;
}

/* A checkpoint is all that is left. */
static void check_missing(struct job *job, const struct rank *rank)
{
    if (survives(job, rank, job->made, false))
        violate(job, "not lost: a checkpoint of step %lld is loaded, but step %lld is there", job->saved, job->made);
}

static void settle_reload(struct job *job, const struct rank *rank, struct round *round)
{
    round->newest = rank->machine.is_refused && job->saved == job->made ? job->saved_before : job->saved;
    round->mesh_ranks = mesh_of(job, rank->size);
    job->saved = round->newest;
    if (job->made > round->newest) job->made = round->newest;
    if (job->logged > round->newest) job->logged = round->newest;
}

/* The mesh with the ranks that have come, or without those that leave. */
static void settle_change(struct job *job, const struct rank *rank, struct round *round)
{
    size_t stay = 0;

    for (size_t r = 0; r < rank->size; r++) {
        const struct rank *other = member_of(job, rank, r);

        stay += round->todo == ASH_ELASTIC_GROW || (round->leaving >> r & 1) == 0;
        if (other != NULL) round->newest = most(round->newest, other->at);
    }
    round->mesh_ranks = mesh_of(job, stay);
}

static void settle_stop(struct job *job)
{
    job->wants_stop = false;
    draw_death(job);
}

/* A step is made: its last operation is complete, or a rank has finished it by itself. */
static void make(struct job *job, const struct rank *rank, int64_t step)
{
    bool is_alone = rank->machine.mesh_ranks == 1;

    if (step <= job->made) return;
    if (is_alone && rank->epoch < job->made_epoch) return; /* it has slept; the fence ends it before it writes */
    if (rank->epoch < job->made_epoch)
        violate(job, "one side: epoch %lld makes a step after epoch %lld did", rank->epoch, job->made_epoch);
    for (size_t r = 0; r < rank->machine.mesh_ranks && r < rank->size; r++) {
        const struct rank *other = member_of(job, rank, r);

        if (other != NULL && other->stops_at >= 0 && step > other->stops_at)
            violate(job, "stops: step %lld is made, but a rank knows that all stop at step %lld", step,
                    other->stops_at);
    }
    job->made = step;
    job->made_epoch = rank->epoch;
}

/* All have come: what the operation yields, the same for all. */
static void complete(struct job *job, const struct rank *rank, struct round *round)
{
    if (round->todo == ASH_ELASTIC_STEP && round->number == 2) make(job, rank, rank->at + 1);
    if (round->todo == ASH_ELASTIC_TRANSFER && round->number == 0) settle_norm(job, rank, round);
    if (round->todo == ASH_ELASTIC_TRANSFER && round->number == 1) settle_mesh(job, rank, round);
    if (round->todo == ASH_ELASTIC_TRANSFER && round->number == 1 && round->is_missing) check_missing(job, rank);
    if (round->todo == ASH_ELASTIC_TRANSFER && round->number == 2) check_not_lost(job, rank, round->newest);
    if (round->todo == ASH_ELASTIC_RELOAD && round->number == 1) settle_reload(job, rank, round);
    if (round->todo == ASH_ELASTIC_GROW || round->todo == ASH_ELASTIC_HAND_OVER) settle_change(job, rank, round);
    if (round->todo == ASH_ELASTIC_MEET && round->votes.stop != 0) settle_stop(job);
}

#endif
