/* elastic: what ranks decide together at a step boundary. Every rank votes, the sum is the same on all of them, and the
 * decision is a function of the sum. */
#include "train/elastic/elastic_priv.h"

#include "base/assert.h"

struct ash_elastic_votes ash_elastic_vote(const struct ash_elastic *machine, uint64_t now_ns)
{
    struct ash_elastic_votes votes = machine->news;

    if (!machine->is_first) return (struct ash_elastic_votes){.told = votes.told, .slow = votes.slow};
    votes.keep = votes.wanted > 0 ? votes.wanted : machine->wanted_ranks;
    votes.settled = machine->told_ns != 0 && now_ns - machine->told_ns >= ASH_ELASTIC_TOGETHER_NS;
    return votes;
}

/* The number of ranks after a resize, and which of them stay. */
static void hear_resize(struct ash_elastic *machine, const struct ash_elastic_votes *sum)
{
    int64_t all = (int64_t)machine->ranks;

    if (sum->wanted > 0) {
        machine->wanted_ranks = sum->wanted;
        machine->resizes++;
    }
    machine->kept_ranks = sum->keep > 0 && sum->keep < all ? sum->keep : all;
}

/* Stop requests: when the first of them came. */
static void hear_told(struct ash_elastic *machine, const struct ash_elastic_votes *sum, uint64_t now_ns)
{
    if (sum->told == 0) machine->told_ns = 0;
    if (sum->told > 0 && machine->told_ns == 0) machine->told_ns = now_ns;
}

/* Does the run end here? Without the ranks that were stopped, too few would remain. */
static bool wants_stop(const struct ash_elastic *machine, const struct ash_elastic_votes *sum)
{
    if (sum->stop != 0 || sum->told == (int64_t)machine->mesh_ranks) return true;
    return sum->told > 0 && (int64_t)machine->ranks - sum->told - sum->leavers < machine->opts.min_ranks;
}

static enum ash_elastic_change change_of(const struct ash_elastic *machine, bool ranks_change, bool from_mesh)
{
    if (machine->growth == ASH_ELASTIC_GROWTH_FED) return ASH_ELASTIC_CHANGE_GROW;
    if (machine->growth == ASH_ELASTIC_GROWTH_OPEN || !ranks_change)
        return ASH_ELASTIC_CHANGE_NONE; /* they try again */
    return from_mesh ? ASH_ELASTIC_CHANGE_HAND_OVER : ASH_ELASTIC_CHANGE_REFORM;
}

/* Is this one of the ranks that leave? */
static bool leaves(const struct ash_elastic *machine, const struct ash_elastic_event *met, bool replaces)
{
    bool was_told = machine->news.told != 0 && met->votes.settled != 0;

    if (machine->change != ASH_ELASTIC_CHANGE_REFORM && machine->change != ASH_ELASTIC_CHANGE_HAND_OVER) return false;
    return was_told || (int64_t)machine->rank >= machine->kept_ranks || met->is_behind ||
           (replaces && machine->news.slow != 0);
}

void ash_elastic_decide(struct ash_elastic *machine, const struct ash_elastic_event *met)
{
    const struct ash_elastic_votes *sum = &met->votes;
    int64_t told = sum->settled != 0 ? sum->told : 0, replaced;
    bool has_spares = machine->ranks > machine->mesh_ranks, ranks_change, from_mesh;
    bool replaces = met->behind == 0 && machine->opts.replaces_slow && sum->slow == 1 && has_spares;

    hear_told(machine, sum, met->now_ns);
    hear_resize(machine, sum);
    replaced = met->behind + replaces;
    machine->is_stopped = machine->ends_here || wants_stop(machine, sum);
    machine->joining = sum->joiners;
    machine->going = told + sum->leavers + (int64_t)machine->ranks - machine->kept_ranks + replaced;
    ranks_change = machine->joining + machine->going > 0;
    from_mesh = told > 0 || replaced > 0 || machine->kept_ranks < (int64_t)machine->mesh_ranks;
    machine->change = machine->is_stopped ? ASH_ELASTIC_CHANGE_NONE : change_of(machine, ranks_change, from_mesh);
    machine->leaves = leaves(machine, met, replaces);
    machine->gives_up = met->gives_up;
    machine->news = (struct ash_elastic_votes){0};
}

static bool every(int64_t interval, uint64_t step)
{
    return interval > 0 && step % (uint64_t)interval == 0;
}

void ash_elastic_plan_due(struct ash_elastic *machine)
{
    const struct ash_elastic_opts *opts = &machine->opts;
    struct ash_elastic_due *due = &machine->due;
    uint64_t step = machine->last;
    bool is_overdue = due->save;

    due->last = step >= opts->steps;
    due->stop = machine->gives_up || (!due->last && machine->is_stopped);
    due->valid = opts->valid_every >= 0 && (due->last || every(opts->valid_every, step));
    due->save = due->last || due->stop || every(opts->save_every, step);
    due->check = due->save || every(opts->check_every, step);
    due->hash = due->save || every(opts->hash_every, step);
    due->save = due->save || is_overdue; /* when that is depends on the disk: it does not show in the log */
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

struct ash_elastic_claims ash_elastic_claim(const struct ash_elastic *machine, size_t mesh_rank, bool is_told)
{
    bool knows = machine->last == machine->at;

    ash_assert(mesh_rank < machine->mesh_ranks);
    return (struct ash_elastic_claims){.is_open = machine->is_open && (knows || machine->is_first),
                                       .knows = knows ? (int64_t)(machine->mesh_ranks - mesh_rank) : 0,
                                       .goes_on = !is_told,
                                       .stops = machine->is_stopped};
}

bool ash_elastic_is_claimed(const struct ash_elastic_claims *claims, size_t mesh_ranks, size_t *source_out)
{
    if (claims->is_open == 0 || claims->knows <= 0) return false;
    *source_out = mesh_ranks - (size_t)claims->knows;
    return true;
}
