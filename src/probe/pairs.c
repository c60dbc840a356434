/* The deep check of pairs of GPUs: a pattern from each to each other, over NVLink or PCIe, compared to the bit; rates
 * against the marks and against each other. */
#include "probe/pairs.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "infra/device/cuda_pairs.h"
#include "observe/check/cluster.h"
#include "probe/marks.h"

#define PAIR_BYTES ((size_t)64 << 20)
#define GPUS_MAX 64
#define PEERS_MIN 6 /* pairs that have a median: of three GPUs */
#define SLOW_SHARE 0.6

/* Rates of all pairs: [count][count]. */
struct pair_rates {
    const struct ash_gpu_marks *marks;
    double *rates;
    double median;
    size_t count, bad, through; /* through: pairs whose copies go through the host's memory */
};

static int copy_all(struct ash_cuda_pairs *pairs, struct pair_rates *all, struct ash_check_report *report,
                    struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < all->count * all->count && rc == 0; i++) {
        size_t from = i / all->count, to = i % all->count;
        struct ash_cuda_pair pair = {0};

        if (from == to) continue;
        rc = ash_cuda_pairs_copy(pairs, from, to, &pair, err);
        all->rates[i] = pair.rate;
        all->through += !pair.is_direct;
        if (pair.wrong_words > 0)
            ash_check_add(report, "GPU pair", ASH_GRADE_BAD, "what was sent",
                          "GPU %zu to %zu: %zu words wrong, bits %016llx", from, to, pair.wrong_words,
                          (unsigned long long)pair.wrong_bits);
        all->bad += pair.wrong_words > 0;
    }
    return rc;
}

/* Slow by the mark, or compared with the other pairs. */
static void judge(struct pair_rates *all, struct ash_check_report *report)
{
    size_t pairs = all->count * (all->count - 1), slowest = 1;

    for (size_t i = 0; i < all->count * all->count; i++) {
        bool is_below = all->rates[i] < all->marks->pair,
             is_apart = pairs >= PEERS_MIN && all->rates[i] < SLOW_SHARE * all->median;

        if (i / all->count == i % all->count) continue;
        if (all->rates[i] < all->rates[slowest]) slowest = i;
        if (!is_below && !is_apart) continue;
        ash_check_add(report, "GPU pair", is_apart || all->marks->is_certain ? ASH_GRADE_BAD : ASH_GRADE_WARN,
                      all->marks->pair_text, "GPU %zu to %zu: %.4g GB/s; the median is %.4g GB/s", i / all->count,
                      i % all->count, all->rates[i] * 1e-9, all->median * 1e-9);
        all->bad++;
    }
    if (all->bad == 0)
        ash_check_add(
            report, "GPU pairs", ASH_GRADE_GOOD, all->marks->pair_text,
            "%zu pairs of %zu GPUs, %zu through the host, every bit as sent; median %.4g GB/s, slowest %zu to "
            "%zu: %.4g GB/s",
            pairs, all->count, all->through, all->median * 1e-9, slowest / all->count, slowest % all->count,
            all->rates[slowest] * 1e-9);
}

static int check(struct ash_cuda_pairs *pairs, const char *machine, struct ash_check_report *report,
                 struct ash_err *err)
{
    struct pair_rates all = {.count = ash_cuda_pairs_count(pairs)};
    struct ash_gpu_marks marks;
    int rc = 0;

    ash_gpu_marks_find(ash_cuda_pairs_name(pairs, 0), machine, &marks);
    all.marks = &marks;
    all.rates = calloc(all.count * all.count, sizeof(*all.rates));
    if (all.rates == NULL) return ash_err_set(err, -ENOMEM, "no memory for a check");
    if (all.count > 1) rc = copy_all(pairs, &all, report, err);
    if (rc == 0) rc = ash_cluster_median(all.rates, all.count * all.count, &all.median);
    if (rc == 0 && all.count > 1) judge(&all, report);
    free(all.rates);
    return rc;
}

void ash_probe_pairs(const char *machine, struct ash_check_report *report)
{
    uint64_t start_ns = ash_clock_ns();
    struct ash_cuda_pairs *pairs = NULL;
    struct ash_err err = {0};
    int rc = ash_cuda_pairs_open(PAIR_BYTES, GPUS_MAX, &pairs, &err);

    if (rc == -ENODEV) return; /* the check of devices has reported it */
    if (rc == 0) rc = check(pairs, machine, report, &err);
    if (rc < 0) ash_check_add(report, "GPU pairs", ASH_GRADE_BAD, "", "%.190s", err.text);
    ash_cuda_pairs_close(pairs);
    report->seconds += (double)(ash_clock_ns() - start_ns) * 1e-9;
}
