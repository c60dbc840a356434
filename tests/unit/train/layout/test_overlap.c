/* Ranks on several nodes: every layout gives the bits of one process, and what layers send and fetch is under way while
 * other layers are at work. Counted, not timed: a call is covered where its owner did a layer's work between starting
 * it and waiting for it. */
#include "unit/train/tiny.h"

#include "collective/call.h"
#include "train/trainer.h"
#include "harness/group_ranks.h"
#include "unit/sanitized.h"

#define LAYERS 6
#define GRAINS_EACH 3 /* of two ranks that share */
#define STEPS 3
#define WORDS_MAX 24
#define BITS_STEP (SANITIZED ? 2 : 1) /* under a sanitizer every second layout */
#define LAYOUT_WORDS 8

/* Calls of a rank in a step: `covered` at least overlap with a layer's work, `bare` at most do not. */
struct layout {
    const char *nodes; /* a letter for each rank */
    uint64_t covered, bare;
    const char *words[LAYOUT_WORDS];
};

#define EXPERTS "model.type=qwen3_moe", "model.experts=4"

static const char *const usual[] = {"recover.copies=0",
                                    "model.layers=6",
                                    "model.vocab=64",
                                    "train.global_batch=6",
                                    "train.grains=6",
                                    "train.micro_batch=1",
                                    "train.valid_every=1",
                                    "train.valid_batches=1",
                                    "train.precision=fp32",
                                    "runtime.threads=1",
                                    NULL};

static uint64_t *hash_of_one; /* of the layout that runs, for the ranks to compare with */

static size_t add_words(const char **words, size_t count, const char *const *more)
{
    while (*more != NULL && count + 1 < WORDS_MAX)
        words[count++] = *more++;
    words[count] = NULL;
    return count;
}

static int open_trainer(struct tiny *tiny, const char *const *words, struct ash_group *group,
                        struct ash_trainer **trainer_out, struct ash_err *err)
{
    const char *all[WORDS_MAX];

    add_words(all, add_words(all, 0, usual), words);
    tiny_open(tiny, all);
    return ash_trainer_open(&tiny->job, NULL, group, NULL, trainer_out, err);
}

/* Some steps, each followed by a validation or not. The counts are those of the last. */
static int train(struct ash_trainer *trainer, uint64_t *hash_out, struct ash_call_counts *counts_out,
                 struct ash_err *err)
{
    struct ash_call_counts before = {0}, after;
    struct ash_step step;
    double loss;
    int rc = 0;

    for (int i = 0; rc == 0 && i < STEPS; i++) {
        before = ash_call_get_counts();
        rc = ash_trainer_step(trainer, &step, err);
        if (rc == 0 && i == 0) rc = ash_trainer_validate(trainer, &loss, NULL, err);
    }
    after = ash_call_get_counts();
    *counts_out = (struct ash_call_counts){after.overlapped - before.overlapped, after.exposed - before.exposed};
    return rc == 0 ? ash_stages_hash(ash_trainer_stages(trainer), hash_out, err) : rc;
}

static int run(struct ash_group *group, struct shared *shared, const void *arg)
{
    const struct layout *layout = arg;
    struct ash_trainer *trainer = NULL;
    struct ash_err err = {0};
    struct ash_call_counts counts = {0};
    struct tiny tiny;
    uint64_t hash = 0;
    int rc = open_trainer(&tiny, layout->words, group, &trainer, &err);

    (void)shared;
    if (rc == 0) rc = train(trainer, &hash, &counts, &err);
    if (rc == 0) rc = ash_trainer_check_copies(trainer, &err);
    if (rc < 0) fprintf(stderr, "%s\n", err.text);
    if (rc == 0 && hash != *hash_of_one) rc = 10;
    if (rc == 0 && (counts.overlapped < layout->covered || counts.exposed > layout->bare)) {
        fprintf(stderr, "%s %s: %llu calls overlapped, %llu exposed\n", layout->nodes, layout->words[0],
                (unsigned long long)counts.overlapped, (unsigned long long)counts.exposed);
        rc = 11;
    }
    ash_trainer_close(trainer);
    tiny_close(&tiny);
    return rc;
}

static void set_hash_of_one(const char *const *words)
{
    const char *alone[WORDS_MAX];
    struct ash_trainer *trainer = NULL;
    struct ash_call_counts counts;
    struct ash_err err = {0};
    struct tiny tiny;
    size_t count = add_words(alone, 0, words);

    add_words(
        alone, count,
        SETTINGS("mesh.dp=1", "mesh.fsdp=1", "mesh.tp=1", "mesh.cp=1", "mesh.pp=1", "mesh.ep=1", "mesh.interleave=1"));
    if (open_trainer(&tiny, alone, NULL, &trainer, &err) < 0 || train(trainer, hash_of_one, &counts, &err) < 0)
        fail_msg("%s", err.text);
    ash_trainer_close(trainer);
    tiny_close(&tiny);
}

static void check(const struct layout *layout)
{
    struct job job = {
        .size = strlen(layout->nodes), .silent_s = 60, .call_s = 60, .run = run, .arg = layout, .nodes = layout->nodes};

    set_hash_of_one(layout->words);
    if (run_job(&job) > 0) fail_msg("%s %s", layout->nodes, layout->words[0]);
}

/* Sums, and weights after the update, are started once a step, of the layers and of the two units around them. Of both
 * the embedding alone is waited for with nothing between. zero 2 sends gradients and zero 3 gathers weights, there and
 * back, for every grain. */
static void test_layers_overlap_calls(void **state)
{
    static const struct layout layouts[] = {
        {"ab", LAYERS + 1, 1, {"mesh.dp=2"}},
        {"ab", 2 * (LAYERS + 1), 2, {"mesh.fsdp=2", "mesh.zero=1"}},
        {"ab", LAYERS + 1 + GRAINS_EACH * (LAYERS + 2) - 1, 2, {"mesh.fsdp=2", "mesh.zero=2"}},
        {"ab", 3 * GRAINS_EACH * LAYERS, 2, {"mesh.fsdp=2", "mesh.zero=3"}},
        {"aabb", LAYERS, 2, {"mesh.dp=2", "mesh.fsdp=2", "mesh.zero=3"}},
    };

    (void)state;
    if (hash_of_one == NULL) skip();
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        check(&layouts[i]);
}

/* A copy is sent a message for each layer and for what is around them, and gets as many. */
static void test_layers_overlap_copies(void **state)
{
    static const struct layout layouts[] = {
        {"aa", 2 * (LAYERS - 1), UINT64_MAX, {"mesh.fsdp=2", "mesh.zero=3", "recover.copies=1"}},
        {"aabb", LAYERS - 2, UINT64_MAX, {"mesh.tp=2", "mesh.pp=2", "recover.copies=1"}},
    };

    (void)state;
    if (hash_of_one == NULL) skip();
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        check(&layouts[i]);
}

static void test_bits_between_nodes(void **state)
{
    static const struct layout layouts[] = {
        {"abc", 0, UINT64_MAX, {"mesh.fsdp=3", "mesh.zero=1", "model.hidden=24", "recover.copies=2"}},
        {"abc", 0, UINT64_MAX, {"mesh.dp=3", "train.grains=3", "train.precision=bf16"}},
        {"abc", 0, UINT64_MAX, {"mesh.fsdp=3", "mesh.zero=2", "train.precision=bf16", "recover.copies=1"}},
        {"abab", 0, UINT64_MAX, {"mesh.dp=2", "mesh.fsdp=2", "mesh.zero=3"}},
        {"aabb", 0, UINT64_MAX, {"mesh.dp=2", "mesh.cp=2"}},
        {"aaab", 0, UINT64_MAX, {"mesh.dp=2", "mesh.cp=2"}}, /* one sum could be made on one node only: nowhere */
        {"aabb", 0, UINT64_MAX, {"mesh.ep=2", "mesh.cp=2", "recover.copies=1", EXPERTS}},
        {"aabb", 0, UINT64_MAX, {"mesh.fsdp=2", "mesh.zero=1", "mesh.cp=2", "train.precision=bf16", "data.seq=64"}},
        {"abab", 0, UINT64_MAX, {"mesh.dp=2", "mesh.fsdp=2", "mesh.zero=1", "recover.copies=1"}},
        {"abab", 0, UINT64_MAX, {"mesh.ep=2", "mesh.fsdp=2", "mesh.zero=3", "recover.copies=1", EXPERTS}},
        {"aabb", 0, UINT64_MAX, {"mesh.dp=2", "mesh.tp=2"}},
        {"abab",
         0,
         UINT64_MAX,
         {"mesh.dp=2", "mesh.pp=2", "mesh.interleave=3", "train.global_batch=8", "train.grains=4", "recover.copies=1"}},
        {"abab", 0, UINT64_MAX, {"mesh.pp=2", "mesh.fsdp=2", "mesh.zero=2", "recover.copies=1"}},
        {"aabb", 0, UINT64_MAX, {"mesh.ep=2", "mesh.dp=2", "recover.copies=2", EXPERTS}},
    };

    (void)state;
    if (hash_of_one == NULL) skip();
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i += BITS_STEP)
        check(&layouts[i]);
}

static int set_up(void **state)
{
    if (tiny_setup(state) != 0) return -1;
    if (!start_network()) return 0;
    hash_of_one = mmap(NULL, sizeof(*hash_of_one), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return hash_of_one == MAP_FAILED;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_overlap_calls),
        cmocka_unit_test(test_layers_overlap_copies),
        cmocka_unit_test(test_bits_between_nodes),
    };

    return cmocka_run_group_tests(tests, set_up, scratch_close);
}
