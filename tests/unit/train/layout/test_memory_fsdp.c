/* Ranks that shard a model's state, experts too, take a share of the memory that one takes, and what they said that
 * they would. */
#include "unit/train/tiny.h"

#include <sys/resource.h>

#include "train/trainer.h"
#include "harness/group_ranks.h"
#include "unit/sanitized.h"

#define SAID_TOLERANCE 0.10
#define SHARE_TOLERANCE 0.15

/* 16 layers of 256: 51 MB of weights. A rank's part of a layer is less than a huge page. */
#define HIDDEN 256
#define FFN 704
#define LAYER_BYTES ((size_t)(4 * HIDDEN * HIDDEN + 3 * HIDDEN * FFN + 2 * HIDDEN) * sizeof(float))
/* What zero=3 keeps of whole layers on one node, however many ranks there are: gradients that are on their way. */
#define WHOLE_LAYERS ASH_FSDP_RING

static struct ash_train_memory *said; /* [GROUP_RANKS_MAX], written by the ranks */

#define WORDS_MAX 24
static const char *const dense[] = {"model.hidden=256", "model.layers=16", "model.ffn=704", "model.kv_heads=4", NULL};
/* 4 layers with 8 experts: 59 MB of weights, nine tenths of them experts'. */
static const char *const sparse[] = {"model.type=qwen3_moe",
                                     "model.hidden=256",
                                     "model.layers=4",
                                     "model.kv_heads=4",
                                     "model.ffn=576",
                                     "model.experts=8",
                                     NULL};
static const char *const usual[] = {
    "data.seq=16",         "train.global_batch=8", "train.grains=8",    "train.micro_batch=1",
    "train.valid_every=0", "train.precision=fp32", "runtime.threads=1", NULL};

/* A model and how it is sharded. */
struct sharding {
    const char *const *model;
    size_t ep, fsdp;
    const char *zero;
};

static size_t add_words(const char **words, size_t count, const char *const *more)
{
    while (*more != NULL && count + 1 < WORDS_MAX)
        words[count++] = *more++;
    words[count] = NULL;
    return count;
}

/* Two steps in a process that then has the peak of nothing else: in the second all buffers have been in use. */
static int train(struct ash_group *group, struct shared *shared, const void *arg)
{
    const struct sharding *sharding = arg;
    struct ash_trainer *trainer = NULL;
    struct ash_err err = {0};
    struct ash_step step;
    struct tiny tiny;
    const char *words[WORDS_MAX];
    char fsdp[32], ep[32];
    size_t count;
    int rc;

    (void)shared;
    snprintf(fsdp, sizeof(fsdp), "mesh.fsdp=%zu", sharding->fsdp);
    snprintf(ep, sizeof(ep), "mesh.ep=%zu", sharding->ep);
    count = add_words(words, add_words(words, 0, sharding->model), usual);
    add_words(words, count, SETTINGS(fsdp, ep, sharding->zero, "recover.copies=0"));
    tiny_open(&tiny, words);
    rc = ash_trainer_open(&tiny.job, NULL, ash_group_size(group) > 1 ? group : NULL, NULL, &trainer, &err);
    for (int i = 0; rc == 0 && i < 2; i++)
        rc = ash_trainer_step(trainer, &step, &err);
    if (rc == 0) said[ash_group_rank(group)] = ash_trainer_get_facts(trainer).memory;
    if (rc < 0) fprintf(stderr, "%s\n", err.text);
    ash_trainer_close(trainer);
    tiny_close(&tiny);
    return rc;
}

/* What the system counts with a rank: what it said, and under zero=2 the others' part of the weights (a third of their
 * state), which lie in memory of all; under zero=3 it looks at a layer at a time. */
static double counted(const struct sharding *sharding, const struct ash_train_memory *memory)
{
    size_t others = strcmp(sharding->zero, "mesh.zero=2") == 0 ? sharding->fsdp - 1 : 0;

    return (double)ash_train_memory_total(memory) + (double)(others * memory->state) / 3.0;
}

/* The highest peak of any rank, in bytes. */
static double peak_with(const struct sharding *sharding)
{
    size_t ranks = sharding->ep * sharding->fsdp;
    const char *zero = sharding->zero;
    struct job job = {.size = ranks, .silent_s = 60, .call_s = 60, .run = train, .arg = sharding};
    struct shared *shared = start(&job);
    double most = 0;

    for (size_t r = 0; r < ranks; r++) {
        struct rusage usage;
        int status = 0;

        assert_int_equal(wait4(shared->pids[r], &status, 0, &usage), shared->pids[r]);
        assert_int_equal(status, 0);
        double peak = (double)usage.ru_maxrss * 1024.0, share = peak / counted(sharding, &said[r]);
        /* gradients of zero=1 are in windows of all ranks: the system has them once and counts them for every rank that
         * maps them */
        if (strcmp(zero, "mesh.zero=1") != 0 && (share < 1.0 - SAID_TOLERANCE || share > 1.0 + SAID_TOLERANCE))
            fail_msg("rank %zu of %zu, %s: %.3f of what was said", r, ranks, zero, share);
        if (peak > most) most = peak;
    }
    end(shared);
    print_message("%zu ranks, %s: said %.1f MB, took %.1f MB\n", ranks, zero,
                  (double)ash_train_memory_total(&said[0]) * 1e-6, most * 1e-6);
    return most;
}

static double peak_of(size_t ranks, const char *zero)
{
    return peak_with(&(struct sharding){.model = dense, .ep = 1, .fsdp = ranks, .zero = zero});
}

/* State and gradients: the peak less what does not depend on the number of ranks. */
static double sharded_of(double peak, size_t whole_layers)
{
    return peak - (double)(said[0].program + said[0].activations + whole_layers * LAYER_BYTES);
}

static void test_memory_falls(void **state)
{
    double peaks[2], one, sharded;

    (void)state;
#if SANITIZED
    skip(); /* a sanitizer's own memory is no part of the formula */
#endif
    peaks[0] = peak_of(1, "mesh.zero=3");
    one = sharded_of(peaks[0], 0) - (double)said[0].state / 3.0; /* it makes leaves where a partial sum could be */
    for (size_t ranks = 2; ranks <= 4; ranks *= 2) {
        double peak = peak_of(ranks, "mesh.zero=3"), share;
        sharded = sharded_of(peak, WHOLE_LAYERS);
        share = sharded / one * (double)ranks;
        print_message("%zu ranks: state and gradients take %.3f of 1/%zu\n", ranks, share, ranks);
        if (share < 1.0 - SHARE_TOLERANCE || share > 1.0 + SHARE_TOLERANCE) fail_msg("%zu ranks: %.3f", ranks, share);
        if (ranks == 2) peaks[1] = peak;
    }
    /* less is sharded, more is kept */
    double first = peak_of(2, "mesh.zero=1"), second = peak_of(2, "mesh.zero=2");
    assert_true(peaks[0] > first && first > second && second > peaks[1]);
}

/* Experts that are sharded over ep, and what each rank then has of everything over fsdp. */
static void test_memory_falls_with_experts(void **state)
{
    double one, ep, zero2, zero3;

    (void)state;
#if SANITIZED
    skip(); /* as above */
#endif
    one = peak_with(&(struct sharding){.model = sparse, .ep = 1, .fsdp = 1, .zero = "mesh.zero=3"});
    ep = peak_with(&(struct sharding){.model = sparse, .ep = 2, .fsdp = 1, .zero = "mesh.zero=3"});
    zero2 = peak_with(&(struct sharding){.model = sparse, .ep = 2, .fsdp = 2, .zero = "mesh.zero=2"});
    zero3 = peak_with(&(struct sharding){.model = sparse, .ep = 2, .fsdp = 2, .zero = "mesh.zero=3"});
    assert_true(one > ep && ep > zero2 && zero2 > zero3);
}

static int setup(void **state)
{
    size_t bytes = GROUP_RANKS_MAX * sizeof(*said);

    said = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return said == MAP_FAILED ? -1 : tiny_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_falls),
                                       cmocka_unit_test(test_memory_falls_with_experts)};

    return cmocka_run_group_tests(tests, setup, scratch_close);
}
