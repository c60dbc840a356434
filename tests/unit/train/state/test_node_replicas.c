/* Replicas on a node keep one copy of the state together: the bits of one process, and a rank that is lost in the
 * middle of an update leaves the last step whole. */
#include "unit/train/tiny.h"

#include "train/trainer_priv.h"
#include "harness/group_ranks.h"

#define RANKS 3
#define STEPS 2

static int open_trainer(struct tiny *tiny, const char *mesh, const char *precision, struct ash_group *group,
                        struct ash_trainer **trainer_out, struct ash_err *err)
{
    tiny_open(tiny, SETTINGS("runtime.threads=1", "train.valid_every=0", mesh, precision));
    return ash_trainer_open(&tiny->job, NULL, group, NULL, trainer_out, err);
}

static int train(struct ash_trainer *trainer, uint64_t *hash_out, struct ash_err *err)
{
    struct ash_step step;
    int rc = 0;

    for (int i = 0; rc == 0 && i < STEPS; i++)
        rc = ash_trainer_step(trainer, &step, err);
    return rc == 0 ? ash_stages_hash(ash_trainer_stages(trainer), hash_out, err) : rc;
}

static uint64_t hash_of_one(const char *precision)
{
    struct ash_trainer *trainer = NULL;
    struct ash_err err = {0};
    struct tiny tiny;
    uint64_t hash = 0;

    if (open_trainer(&tiny, "mesh.dp=1", precision, NULL, &trainer, &err) < 0 || train(trainer, &hash, &err) < 0)
        fprintf(stderr, "%s\n", err.text);
    ash_trainer_close(trainer);
    tiny_close(&tiny);
    return hash;
}

/* The last rank updates its part of the third step and dies; the others hear of it where they wait for it. */
static int lose_one(struct ash_trainer *trainer, struct ash_group *group)
{
    struct ash_stages *stages = ash_trainer_stages(trainer);
    struct ash_stage *stage = &stages->chunks[0];
    double losses[RANKS], norm = 0;

    if (ash_stages_train(stages, &(struct ash_stages_task){.source = &trainer->train, .scale = 1.0f}, STEPS, losses,
                         NULL) < 0)
        return 1;
    if (ash_stages_norm(stages, &norm, NULL) < 0) return 2;
    if (ash_group_rank(group) == RANKS - 1) {
        ash_optimizer_update(&stage->optimizer, stage->grads, norm, 0.01);
        raise(SIGKILL);
    }
    ash_stages_update(stages, norm, 0.01);
    return ash_stages_commit(stages, true, NULL) < 0 ? 0 : 3;
}

static int run(struct ash_group *group, struct shared *shared, const void *arg)
{
    const char *const *settings = arg;
    struct ash_trainer *trainer = NULL;
    struct ash_err err = {0};
    struct tiny tiny;
    uint64_t before = 0, after = 0;
    int rc = open_trainer(&tiny, settings[0], settings[1], group, &trainer, &err);

    (void)shared;
    if (rc == 0) rc = train(trainer, &before, &err);
    if (rc < 0) fprintf(stderr, "%s\n", err.text);
    if (rc == 0 && trainer->now->mesh.node_replicas == NULL) rc = 10;
    if (rc == 0) rc = lose_one(trainer, group);
    if (rc == 0 && ash_stages_hash(ash_trainer_stages(trainer), &after, &err) < 0) rc = 11;
    if (rc == 0 && (before != after || before != hash_of_one(settings[1]))) rc = 12;
    ash_trainer_close(trainer);
    tiny_close(&tiny);
    return rc;
}

static void check(const char *mesh, const char *precision)
{
    const char *settings[] = {mesh, precision};
    struct job job = {.size = RANKS, .silent_s = 60, .call_s = 60, .run = run, .arg = settings};
    struct shared *shared = start(&job);

    assert_int_equal(finish(&job, shared, RANKS - 1), 0);
    end(shared);
}

static void test_a_loss_leaves_the_last_step_whole(void **state)
{
    (void)state;
    check("mesh.dp=3", "train.precision=fp32");
    check("mesh.dp=3", "train.precision=bf16");
}

/* A process says its share: there are places for two steps, once. */
static int say_memory(struct ash_group *group, struct shared *shared, const void *arg)
{
    struct ash_trainer *trainer = NULL;
    struct ash_err err = {0};
    struct tiny tiny;
    int rc = open_trainer(&tiny, "mesh.dp=3", "train.precision=fp32", group, &trainer, &err);

    (void)shared;
    (void)arg;
    if (rc == 0) {
        size_t alone = ash_model_size(ash_trainer_state(trainer)->model) * 3 * sizeof(float);
        rc = ash_trainer_get_facts(trainer).memory.state == 2 * alone / RANKS ? 0 : 20;
    }
    ash_trainer_close(trainer);
    tiny_close(&tiny);
    return rc;
}

static void test_memory_is_shared(void **state)
{
    struct job job = {.size = RANKS, .silent_s = 60, .call_s = 60, .run = say_memory};

    (void)state;
    assert_int_equal(run_job(&job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_loss_leaves_the_last_step_whole),
        cmocka_unit_test(test_memory_is_shared),
    };

    return cmocka_run_group_tests(tests, tiny_setup, scratch_close);
}
