/* A rank's work against the median of its peers, step by step, as the logarithm of their ratio: of two ranks that are
 * alike, on a machine where both are held up at random, either is as often ahead as behind. Its noise is known from
 * differences of neighbouring steps, which a lasting change hardly moves. A one-sided cumulative sum over the excess,
 * in units of that noise and cut off where single steps are far out, crosses its limit only when the excess stays. */
#include "observe/ranks/straggler.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"

#define ALLOWED 0.04     /* excess that is ignored: half of the smallest change to detect */
#define NAMED_LEAST 0.05 /* mean excess below which no rank is named */
#define LIMIT 12.0       /* of the cumulative sum, in units of noise */
#define CUT 3.0          /* one step counts at most that much */
#define NOISE_LEAST 0.01
#define MAD_TO_SIGMA 1.4826 /* of a normal distribution */
#define SIGMAS 4.0
#define WARM_UP 3 /* first steps of a run touch memory for the first time */
#define BASE_STEPS 20

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

static double median(double *values, size_t count)
{
    if (count == 0) return NAN;
    qsort(values, count, sizeof(*values), compare);
    return count % 2 != 0 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* ratio[step] of a rank's work to the median of the others', as a logarithm. */
static void find_ratios(const struct ash_work *work, size_t rank, double *ratio, double *peers, double *buf)
{
    ash_assert(rank < work->ranks);
    for (size_t s = 0; s < work->steps; s++) {
        const double *own = work->own + s * work->ranks;
        size_t count = 0;

        for (size_t r = 0; r < work->ranks; r++)
            if (r != rank && !isnan(own[r])) buf[count++] = own[r];
        peers[s] = median(buf, count);
        ratio[s] = peers[s] > 0 && own[rank] > 0 ? log(own[rank] / peers[s]) : NAN;
    }
}

/* The noise of a series: the median of differences of neighbours, as a standard deviation. */
static double noise_of(const double *ratio, size_t steps, double *buf)
{
    size_t count = 0;

    for (size_t s = WARM_UP + 1; s < steps; s++)
        if (!isnan(ratio[s]) && !isnan(ratio[s - 1])) buf[count++] = fabs(ratio[s] - ratio[s - 1]);
    return count < 4 ? NAN : fmax(median(buf, count) * MAD_TO_SIGMA / sqrt(2), NOISE_LEAST);
}

/* The rank's usual ratio, from the first steps: work may be split unevenly. */
static double base_of(const double *ratio, size_t steps, double *buf)
{
    size_t count = 0;

    for (size_t s = WARM_UP; s < steps && count < BASE_STEPS; s++)
        if (!isnan(ratio[s])) buf[count++] = ratio[s];
    return median(buf, count);
}

struct change {
    bool is_found;
    size_t since, named;
};

/* The last rise above `base`, by more than allowed, that has stayed until the end. */
static struct change find_change(const double *ratio, size_t steps, double base, double noise, double allowed)
{
    struct change change = {0};
    double sum = 0;
    size_t start = WARM_UP;

    ash_assert(noise > 0); /* a divisor: NOISE_LEAST at least */
    for (size_t s = WARM_UP; s < steps; s++) {
        double excess = isnan(ratio[s]) ? 0 : (ratio[s] - base - allowed) / noise;

        sum += fmin(fmax(excess, -CUT), CUT);
        if (sum <= 0) {
            sum = 0;
            start = s + 1;
            change.is_found = false;
        } else if (sum > LIMIT && !change.is_found) {
            change = (struct change){true, start, s};
        }
        sum = fmin(sum, 3 * LIMIT); /* so that the end of a slow time is seen too */
    }
    return change;
}

struct ash_rise ash_rise_find(const double *series, size_t count, double least, double *buf)
{
    double noise = noise_of(series, count, buf), base = base_of(series, count, buf), excess;
    struct change change;
    size_t seen = 0;

    if (isnan(noise) || isnan(base)) return (struct ash_rise){0};
    change = find_change(series, count, base, noise, least / 2);
    if (!change.is_found || change.since < WARM_UP + BASE_STEPS) return (struct ash_rise){0};
    ash_assert(change.since < count);
    for (size_t s = change.since; s < count; s++)
        if (!isnan(series[s])) buf[seen++] = series[s];
    excess = median(buf, seen) - base; /* a mean would follow single values */
    return excess >= least ? (struct ash_rise){true, change.since, excess} : (struct ash_rise){0};
}

/* Is the middle of the values since a step far enough above base, too? Where ranks are held up at random, a sum follows
 * the few that were held up long. */
static bool is_lasting(const double *ratio, size_t steps, size_t since, double base, double *buf)
{
    size_t count = 0;
    double middle, spread;

    for (size_t s = since; s < steps; s++)
        if (!isnan(ratio[s])) buf[count++] = ratio[s];
    middle = median(buf, count);
    for (size_t i = 0; i < count; i++)
        buf[i] = fabs(buf[i] - middle);
    spread = median(buf, count) * MAD_TO_SIGMA;
    return count > 0 && middle - base > fmax(ALLOWED, SIGMAS * spread / sqrt((double)count));
}

/* The rank's cost since a step, and the part responsible. */
static void weigh(const struct ash_work *work, size_t rank, size_t since, const double *peers,
                  struct ash_straggler *found)
{
    double excess = 0, expected = 0, data = 0, data_peers = 0;

    ash_assert(since < work->steps && rank < work->ranks && work->ranks > 1);
    for (size_t s = since; s < work->steps; s++) {
        double own = work->own[s * work->ranks + rank];

        if (isnan(own) || isnan(peers[s])) continue;
        excess += own - peers[s];
        expected += peers[s];
        for (size_t r = 0; work->data != NULL && r < work->ranks; r++) {
            double value = work->data[s * work->ranks + r];

            if (isnan(value)) continue;
            if (r == rank)
                data += value;
            else
                data_peers += value / (double)(work->ranks - 1);
        }
    }
    found->slower = expected > 0 ? excess / expected : 0;
    found->lost_s = fmax(excess, 0);
    found->is_data = work->data != NULL && data - data_peers > excess / 2;
}

static uint64_t number_of(const struct ash_work *work, size_t step)
{
    ash_assert(step < work->steps);
    return work->step != NULL ? work->step[step] : step + 1;
}

/* One rank. Returns whether it is slow. */
static bool judge(const struct ash_work *work, size_t rank, double *ratio, double *peers, double *buf,
                  struct ash_straggler *found_out)
{
    struct ash_straggler found = {.rank = rank};
    double noise, base;
    struct change change;

    find_ratios(work, rank, ratio, peers, buf);
    noise = noise_of(ratio, work->steps, buf);
    base = base_of(ratio, work->steps, buf);
    if (isnan(noise) || isnan(base)) return false;
    change = find_change(ratio, work->steps, fmax(base, 0), noise, ALLOWED); /* against its past */
    if (!change.is_found) {
        change = find_change(ratio, work->steps, 0, noise, ALLOWED); /* against its peers */
        found.was_always = change.is_found && change.since <= WARM_UP + 2;
        if (change.is_found && !found.was_always) return false;
    }
    if (!change.is_found || !is_lasting(ratio, work->steps, change.since, found.was_always ? 0 : fmax(base, 0), buf))
        return false;
    weigh(work, rank, change.since, peers, &found);
    found.since = number_of(work, change.since);
    found.named = number_of(work, change.named);
    if (found.slower < NAMED_LEAST) return false;
    *found_out = found;
    return true;
}

static int slowest_first(const void *a, const void *b)
{
    const struct ash_straggler *left = a, *right = b;

    return left->lost_s > right->lost_s ? -1 : left->lost_s < right->lost_s;
}

int ash_straggler_find(const struct ash_work *work, struct ash_straggler *found, size_t most)
{
    size_t room = work->steps > work->ranks ? work->steps : work->ranks;
    double *memory = malloc((2 * work->steps + room + 1) * sizeof(*memory));
    struct ash_straggler *all = malloc((work->ranks + 1) * sizeof(*all));
    size_t count = 0;

    if (memory == NULL || all == NULL) {
        free(memory);
        free(all);
        return -ENOMEM;
    }
    for (size_t r = 0; r < work->ranks && work->ranks > 1; r++)
        count += judge(work, r, memory, memory + work->steps, memory + 2 * work->steps, &all[count]);
    if (count > 1) qsort(all, count, sizeof(*all), slowest_first);
    if (count > most) count = most;
    for (size_t i = 0; i < count; i++)
        found[i] = all[i];
    free(memory);
    free(all);
    return (int)count;
}
