/* A run in its folder: stopped and resumed at every step, saved on a full disk, damaged, changed, locked; each time the
 * end is the end of the run that nothing happened to. */
#include "unit/train/tiny.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "record/metrics.h"
#include "storage/commit/commit.h"
#include "train/checkpoint.h"
#include "train/run/run.h"
#include "unit/sanitized.h"

#define STEPS 20
#define MANY_STEPS 1000
#define EVERY (SANITIZED ? 4 : 1) /* steps between those at which a run is stopped and resumed */

static const char *const *no_settings = NULL;
static struct ash_err err;

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

/* The stop question, asked once after each step: what happens then is set by the test. */
static int asked, stop_after;
static void (*on_step)(int step);

static bool stop(void)
{
    asked++;
    if (on_step != NULL) on_step(asked);
    return asked == stop_after;
}

struct run_setup {
    const char *dir;
    const char *const *settings;
    bool resume, allow_change;
    int stop_after; /* steps of this part; 0: to the end */
    void (*on_step)(int step);
};

static int run(const struct run_setup *setup, struct ash_run_result *result_out)
{
    struct ash_run_opts opts = {
        .dir = scratch_path(setup->dir), .resume = setup->resume, .allow_change = setup->allow_change, .stop = stop};
    struct tiny tiny;
    int rc;

    asked = 0;
    stop_after = setup->stop_after;
    on_step = setup->on_step;
    err = (struct ash_err){0};
    tiny_open(&tiny, setup->settings);
    rc = ash_run_job(&tiny.job, &opts, result_out, &err);
    tiny_close(&tiny);
    return rc;
}

static void run_well(const struct run_setup *setup, struct ash_run_result *result_out)
{
    if (run(setup, result_out) < 0) fail_msg("%s", err.text);
}

static void expect_refusal(const struct run_setup *setup, int code, const char *part)
{
    struct ash_run_result result = {0};

    assert_int_equal(run(setup, &result), code);
    if (strstr(err.text, part) == NULL) fail_msg("'%s' does not say '%s'", err.text, part);
    assert_int_equal(result.step, 0);
}

/* What the log says about each step. */
struct log_line {
    int step;
    char loss_bits[16], state_hash[24];
    bool skipped, measured;
};

static size_t read_log(const char *dir, struct log_line *lines)
{
    char path[PATH_MAX], *text = NULL, *save = NULL;
    size_t size = 0, count = 0;

    snprintf(path, sizeof(path), "%s/log.jsonl", scratch_path(dir));
    assert_int_equal(ash_file_read(path, 1 << 24, &text, &size, &err), 0);
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        json_t *json = json_loads(line, 0, NULL);
        assert_non_null(json);
        const char *hash = json_string_value(json_object_get(json, "state_hash"));
        struct log_line *out = &lines[count++];
        assert_true(count < MANY_STEPS);
        out->step = (int)json_integer_value(json_object_get(json, "step"));
        snprintf(out->loss_bits, sizeof(out->loss_bits), "%s", json_string_value(json_object_get(json, "loss_bits")));
        snprintf(out->state_hash, sizeof(out->state_hash), "%s", hash != NULL ? hash : "");
        out->skipped = json_is_true(json_object_get(json, "skipped"));
        out->measured = json_object_get(json, "valid_loss") != NULL;
        json_decref(json);
    }
    free(text);
    return count;
}

static void assert_same_log(const char *dir, const char *expected_dir)
{
    static struct log_line found[MANY_STEPS], expected[MANY_STEPS];
    size_t count = read_log(expected_dir, expected);

    assert_int_equal(read_log(dir, found), count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(found[i].step, i + 1);
        assert_string_equal(found[i].loss_bits, expected[i].loss_bits);
        assert_string_equal(found[i].state_hash, expected[i].state_hash);
        assert_int_equal(found[i].measured, expected[i].measured);
    }
}

static bool exists(const char *dir, const char *name)
{
    char path[PATH_MAX + 256];

    snprintf(path, sizeof(path), "%s/%s", scratch_path(dir), name);
    return ash_path_exists(path);
}

/* Entries of DIR/checkpoints, hidden ones too. */
static int count_checkpoints(const char *dir)
{
    char path[PATH_MAX];
    struct dirent *entry;
    int count = 0;

    snprintf(path, sizeof(path), "%s/checkpoints", scratch_path(dir));
    DIR *folder = opendir(path);
    if (folder == NULL) return 0;
    while ((entry = readdir(folder)) != NULL)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(folder);
    return count;
}

/* Flip one byte in the middle of a checkpoint's file. */
static void damage(const char *dir, const char *file)
{
    char path[PATH_MAX + 256], byte;
    off_t middle;

    snprintf(path, sizeof(path), "%s/checkpoints/%s", scratch_path(dir), file);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    middle = lseek(fd, 0, SEEK_END) / 2;
    assert_int_equal(pread(fd, &byte, 1, middle), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, middle), 1);
    close(fd);
}

/* Put a checkpoint in place of itself that differs in the name of its arithmetic alone. */
static void rename_arithmetic(const char *dir, const char *step, const char *arithmetic)
{
    char path[PATH_MAX], from[PATH_MAX + 256], to[PATH_MAX + 256];
    struct ash_commit *commit = NULL;
    json_t *manifest = NULL, *file;
    size_t i;

    snprintf(path, sizeof(path), "%s/checkpoints/%s", scratch_path(dir), step);
    assert_int_equal(ash_commit_verify(path, true, &manifest, NULL), 0);
    assert_int_equal(ash_commit_begin(path, &commit, NULL), 0);
    json_array_foreach(json_object_get(manifest, "files"), i, file) {
        const char *name = json_string_value(json_object_get(file, "name"));
        snprintf(from, sizeof(from), "%s/%s", path, name);
        snprintf(to, sizeof(to), "%s/%s", ash_commit_dir(commit), name);
        assert_int_equal(link(from, to), 0);
    }
    json_t *state = json_object_get(manifest, "state");
    assert_int_equal(json_object_set_new(state, "arithmetic", json_string(arithmetic)), 0);
    assert_int_equal(ash_commit_finish(commit, state, NULL), 0);
    json_decref(manifest);
}

/* The run that nothing happens to: every test compares with it. */
static struct ash_run_result whole;

static int setup_group(void **state)
{
    if (tiny_setup(state) != 0) return -1;
    signal(SIGXFSZ, SIG_IGN);
    run_well(&(struct run_setup){.dir = "whole", .settings = no_settings}, &whole);
    return 0;
}

static void assert_whole(const struct ash_run_result *result, const char *dir)
{
    assert_int_equal(result->step, STEPS);
    assert_false(result->stopped);
    assert_int_equal(result->state_hash, whole.state_hash);
    assert_same_log(dir, "whole");
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_a_run_leaves_everything_behind(void **state)
{
    static struct log_line lines[MANY_STEPS];
    char hash[24];

    (void)state;
    assert_int_equal(read_log("whole", lines), STEPS);
    snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)whole.state_hash);
    assert_string_equal(lines[STEPS - 1].state_hash, hash);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(lines[i].measured, (i + 1) % 5 == 0);
    assert_true(exists("whole", "job.yaml") && exists("whole", "report.html"));
    assert_true(exists("whole", "model/config.json") && exists("whole", "model/model.safetensors"));
    assert_true(exists("whole", "checkpoints/step-000020/optimizer.safetensors"));
    assert_true(exists("whole", "checkpoints/step-000020/config.json"));
    assert_int_equal(count_checkpoints("whole"), 1);
}

static void test_stopped_and_resumed_at_every_step(void **state)
{
    (void)state;
    for (int at = 1; at < STEPS; at += EVERY) {
        struct ash_run_result result = {0};
        char dir[32];
        snprintf(dir, sizeof(dir), "stop-%d", at);
        run_well(&(struct run_setup){.dir = dir, .stop_after = at}, &result);
        assert_true(result.stopped);
        assert_int_equal(result.step, at);
        assert_false(exists(dir, "model"));
        run_well(&(struct run_setup){.dir = dir, .resume = true, .settings = SETTINGS("runtime.threads=1")}, &result);
        assert_whole(&result, dir);
    }
}

static void test_stopped_at_all_steps_of_one_run(void **state)
{
    static const char *const changes[] = {"train.micro_batch=1", "train.recompute=full", "runtime.threads=3",
                                          "train.keep=1"};
    struct ash_run_result result = {0};

    (void)state;
    for (int at = 1; at < STEPS; at++) {
        run_well(
            &(struct run_setup){.dir = "often", .resume = true, .stop_after = 1, .settings = SETTINGS(changes[at % 4])},
            &result);
        assert_true(result.stopped);
        assert_int_equal(result.step, at);
    }
    run_well(&(struct run_setup){.dir = "often", .resume = true}, &result);
    assert_whole(&result, "often");
}

static void test_bf16_resumes_to_the_same_bits(void **state)
{
    const char *const *bf16 = SETTINGS("train.precision=bf16", "train.steps=8");
    struct ash_run_result straight = {0}, result = {0};

    (void)state;
    run_well(&(struct run_setup){.dir = "bf16", .settings = bf16}, &straight);
    run_well(&(struct run_setup){.dir = "bf16-stop", .settings = bf16, .stop_after = 3}, &result);
    run_well(&(struct run_setup){.dir = "bf16-stop", .settings = bf16, .resume = true}, &result);
    assert_int_equal(result.state_hash, straight.state_hash);
    assert_int_not_equal(result.state_hash, whole.state_hash);
}

static void test_a_second_start_needs_a_decision(void **state)
{
    struct ash_run_result result = {0};

    (void)state;
    expect_refusal(&(struct run_setup){.dir = "whole"}, -EBADE, "--resume");
    run_well(&(struct run_setup){.dir = "whole", .resume = true}, &result); /* already at its end */
    assert_whole(&result, "whole");
    run_well(&(struct run_setup){.dir = "fresh", .resume = true}, &result); /* nothing to resume: begins */
    assert_whole(&result, "fresh");
}

static void test_changes_that_would_change_bits_are_named(void **state)
{
    static const struct {
        const char *setting, *says;
    } cases[] = {{"train.seed=2", "train.seed was 1 when the checkpoint was made and is 2 now"},
                 {"train.global_batch=24", "train.global_batch"},
                 {"train.grains=6", "train.grains"},
                 {"model.layers=3", "model.layers"},
                 {"optimizer.lr=0.02", "optimizer.lr"},
                 {"train.precision=bf16", "train.precision was fp32"},
                 {"train.steps=30", "train.steps"},
                 {"data.seq=20", "data.seq"}};
    struct ash_run_result result = {0};

    (void)state;
    run_well(&(struct run_setup){.dir = "change", .stop_after = 4}, &result);
    for (size_t i = 0; i < 8; i++)
        expect_refusal(&(struct run_setup){.dir = "change", .resume = true, .settings = SETTINGS(cases[i].setting)},
                       -EBADE, cases[i].says);
    expect_refusal(&(struct run_setup){.dir = "change", .resume = true, .settings = SETTINGS("train.seed=2")}, -EBADE,
                   "--allow-change");
    run_well(
        &(struct run_setup){
            .dir = "change", .resume = true, .allow_change = true, .settings = SETTINGS("train.steps=22")},
        &result);
    assert_int_equal(result.step, 22);
}

static void test_other_data_are_noticed(void **state)
{
    struct ash_run_result result = {0};
    char other[PATH_MAX + 32];

    (void)state;
    run_well(&(struct run_setup){.dir = "data", .stop_after = 4}, &result);
    tiny_data(scratch_path("train2"), 3, 2000);
    snprintf(other, sizeof(other), "data.train=%s", scratch_path("train2"));
    expect_refusal(&(struct run_setup){.dir = "data", .resume = true, .settings = SETTINGS(other)}, -EBADE,
                   "other data");
    tiny_data(scratch_path("train3"), 1, 2000);
    snprintf(other, sizeof(other), "data.train=%s", scratch_path("train3"));
    run_well(&(struct run_setup){.dir = "data", .resume = true, .settings = SETTINGS(other)},
             &result); /* the same data elsewhere */
    assert_whole(&result, "data");
}

/* A float32 run may change backends; a bf16 run only among those that share its reference. */
static void test_another_arithmetic_is_noticed(void **state)
{
    struct ash_run_result result = {0};

    (void)state;
    run_well(&(struct run_setup){.dir = "other32", .stop_after = 4, .settings = SETTINGS("runtime.backend=ref")},
             &result);
    run_well(
        &(struct run_setup){
            .dir = "other32", .resume = true, .stop_after = 2, .settings = SETTINGS("runtime.backend=ref-bfmmla")},
        &result);
    run_well(&(struct run_setup){.dir = "other32", .resume = true}, &result);
    assert_whole(&result, "other32");
    run_well(&(struct run_setup){.dir = "other16",
                                 .stop_after = 4,
                                 .settings = SETTINGS("train.precision=bf16", "runtime.backend=ref")},
             &result);
    expect_refusal(&(struct run_setup){.dir = "other16",
                                       .resume = true,
                                       .settings = SETTINGS("train.precision=bf16", "runtime.backend=ref-bfmmla")},
                   -EBADE, "runtime.backend=ref gives the same bits");
    run_well(&(struct run_setup){.dir = "other16",
                                 .resume = true,
                                 .stop_after = 1,
                                 .settings = SETTINGS("train.precision=bf16", "runtime.backend=portable")},
             &result);
}

/* A bf16 run of a version that summed over tokens in another order is not continued as if nothing had changed. */
static void test_another_order_is_noticed(void **state)
{
    const char *const *settings = SETTINGS("train.precision=bf16", "runtime.backend=ref-bfmmla");
    struct ash_run_result result = {0};

    (void)state;
    run_well(&(struct run_setup){.dir = "order", .settings = settings, .stop_after = 4}, &result);
    rename_arithmetic("order", "step-000004", "ref-bfmmla");
    expect_refusal(&(struct run_setup){.dir = "order", .resume = true, .settings = settings}, -EBADE,
                   "another version of ashlar");
    rename_arithmetic("order", "step-000004", "ref-bfmmla/2");
    run_well(&(struct run_setup){.dir = "order", .resume = true, .stop_after = 1, .settings = settings}, &result);
}

static void test_a_damaged_checkpoint_gives_way_to_the_one_before(void **state)
{
    static const char *const files[] = {"step-000010/model.safetensors", "step-000010/optimizer.safetensors",
                                        "step-000010/manifest.json"};
    const char *const *saving = SETTINGS("train.save_every=5");

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct ash_run_result result = {0};
        char dir[32];
        snprintf(dir, sizeof(dir), "damage-%zu", i);
        run_well(&(struct run_setup){.dir = dir, .settings = saving, .stop_after = 10}, &result);
        assert_int_equal(count_checkpoints(dir), 2);
        damage(dir, files[i]);
        run_well(&(struct run_setup){.dir = dir, .settings = saving, .resume = true}, &result);
        assert_whole(&result, dir);
    }
}

static void test_nothing_but_damage_is_an_error(void **state)
{
    struct ash_run_result result = {0};

    (void)state;
    run_well(&(struct run_setup){.dir = "ruin", .stop_after = 3}, &result);
    damage("ruin", "step-000003/model.safetensors");
    expect_refusal(&(struct run_setup){.dir = "ruin", .resume = true}, -EBADE, "model.safetensors");
    expect_refusal(&(struct run_setup){.dir = "ruin"}, -EBADE, "--resume");
}

static void test_old_checkpoints_are_removed(void **state)
{
    struct ash_run_result result = {0};

    (void)state;
    run_well(&(struct run_setup){.dir = "keep", .settings = SETTINGS("train.save_every=3", "train.keep=2")}, &result);
    assert_int_equal(count_checkpoints("keep"), 2);
    assert_true(exists("keep", "checkpoints/step-000018") && exists("keep", "checkpoints/step-000020"));
    run_well(&(struct run_setup){.dir = "all", .settings = SETTINGS("train.save_every=5", "train.keep=0")}, &result);
    assert_int_equal(count_checkpoints("all"), 4);
}

/* Saves of all runs of this process that have failed. */
static int count_failed_saves(void)
{
    static const char name[] = "\nashlar_train_save_errors_total ";
    char *text = NULL, *at;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    int count;

    assert_non_null(out);
    ash_metrics_write(out);
    assert_int_equal(fclose(out), 0);
    at = strstr(text, name);
    count = at != NULL ? atoi(at + strlen(name)) : 0;
    free(text);
    return count;
}

static int failed_before;

static bool is_third_saved(void)
{
    return exists("full", "checkpoints/step-000003/manifest.json");
}

static bool have_four_failed(void)
{
    return count_failed_saves() == failed_before + 4;
}

static bool is_tenth_saved(void)
{
    return exists("last", "checkpoints/step-000010/manifest.json");
}

/* Saves continue beside the steps: wait until one has come as far as a test needs it. */
static void wait_until(bool (*has_come)(void))
{
    uint64_t end_ns = ash_clock_ns() + 120000000000u;

    while (!has_come()) {
        assert_true(ash_clock_ns() < end_ns);
        usleep(1000);
    }
}

static void limit_files(rlim_t size_bytes)
{
    struct rlimit limit;

    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = size_bytes < limit.rlim_max ? size_bytes : limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

/* A disk that is full from step 4 to step 8, as far as this process can tell. */
static void fill_disk(int step)
{
    if (step == 4) {
        wait_until(is_third_saved);
        failed_before = count_failed_saves();
        limit_files(1024);
    }
    if (step == 8) {
        wait_until(have_four_failed);
        limit_files(RLIM_INFINITY);
    }
}

static void fill_disk_for_good(int step)
{
    if (step != 15) return;
    wait_until(is_tenth_saved);
    limit_files(1024);
}

static void test_a_full_disk_does_not_end_the_run(void **state)
{
    struct ash_run_result result = {0};

    (void)state;
    run_well(&(struct run_setup){.dir = "full",
                                 .settings = SETTINGS("train.save_every=1", "train.keep=0"),
                                 .on_step = fill_disk},
             &result);
    assert_whole(&result, "full");
    assert_true(exists("full", "checkpoints/step-000001") && exists("full", "checkpoints/step-000003"));
    assert_true(exists("full", "checkpoints/step-000008") && exists("full", "checkpoints/step-000020"));
    for (int i = 4; i < 8; i++) {
        char name[64];
        snprintf(name, sizeof(name), "checkpoints/step-%06d", i);
        assert_false(exists("full", name));
    }
    assert_int_equal(count_checkpoints("full"), STEPS - 4); /* and nothing half-written */
}

static void test_a_failed_last_save_is_an_error(void **state)
{
    struct ash_run_result result = {0};

    (void)state;
    assert_true(run(&(struct run_setup){.dir = "last",
                                        .settings = SETTINGS("train.save_every=10"),
                                        .on_step = fill_disk_for_good},
                    &result) < 0);
    limit_files(RLIM_INFINITY);
    assert_non_null(strstr(err.text, "the last step (20) could not be saved"));
    assert_true(exists("last", "checkpoints/step-000010"));
    assert_false(exists("last", "checkpoints/step-000020"));
    run_well(&(struct run_setup){.dir = "last", .settings = SETTINGS("train.save_every=10"), .resume = true}, &result);
    assert_whole(&result, "last");
}

static void test_a_hopeless_run_ends_saved(void **state)
{
    const char *const *hopeless = SETTINGS("optimizer.lr=1e30", "schedule.warmup=0", "guard.max_skips=4");
    static struct log_line lines[MANY_STEPS];
    struct ash_run_result result = {0};

    (void)state;
    assert_int_equal(run(&(struct run_setup){.dir = "nan", .settings = hopeless}, &result), -ECANCELED);
    assert_non_null(strstr(err.text, "4 steps in a row"));
    size_t count = read_log("nan", lines);
    assert_in_range(count, 5, 10);
    for (size_t i = count - 4; i < count; i++)
        assert_true(lines[i].skipped);
    assert_false(lines[0].skipped);
    assert_int_equal(count_checkpoints("nan"), 1);
    assert_int_equal(run(&(struct run_setup){.dir = "nan", .settings = hopeless, .resume = true}, &result), -ECANCELED);
}

static int inner_rc;
static struct ash_err inner_err;

static void run_inside(int step)
{
    struct ash_run_opts opts = {.dir = scratch_path("lock"), .resume = true};
    struct ash_run_result result = {0};
    struct tiny tiny;

    if (step != 2) return;
    tiny_open(&tiny, no_settings);
    inner_rc = ash_run_job(&tiny.job, &opts, &result, &inner_err);
    tiny_close(&tiny);
}

static void test_one_process_at_a_time(void **state)
{
    struct ash_run_result result = {0};

    (void)state;
    run_well(&(struct run_setup){.dir = "lock", .on_step = run_inside}, &result);
    assert_int_equal(inner_rc, -EBUSY);
    assert_non_null(strstr(inner_err.text, "another process"));
    assert_whole(&result, "lock");
}

static const char *left_behind; /* a run's folder */
static struct ash_run_result newer;

static bool is_fourth_saved(void)
{
    return exists(left_behind, "checkpoints/step-000004/manifest.json");
}

/* A process sleeps after its fifth step; others take the folder over, as the survivors of a loss do, and end the run.
 */
static void sleep_while_others_go_on(int step)
{
    struct ash_run_opts opts = {.dir = scratch_path(left_behind), .resume = true};
    char lock[PATH_MAX + 8];
    struct tiny tiny;

    if (step != 5) return;
    if (strcmp(left_behind, "idle") == 0) wait_until(is_fourth_saved); /* else it may sleep in the midst of a save */
    snprintf(lock, sizeof(lock), "%s/.lock", opts.dir);
    assert_int_equal(unlink(lock), 0);
    tiny_open(&tiny, SETTINGS("train.save_every=1", "train.keep=0"));
    inner_rc = ash_run_job(&tiny.job, &opts, &newer, &inner_err);
    tiny_close(&tiny);
}

static void test_a_process_that_was_left_behind_harms_nothing(void **state)
{
    static const char *const dirs[] = {"idle", "saving"};
    struct ash_run_result result = {0};
    char root[PATH_MAX + 16];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        left_behind = dirs[i];
        expect_refusal(&(struct run_setup){.dir = dirs[i],
                                           .settings = SETTINGS("train.save_every=1", "train.keep=0"),
                                           .on_step = sleep_while_others_go_on},
                       -ESTALE, "the run has continued without this process");
        if (inner_rc < 0) fail_msg("%s", inner_err.text);
        assert_whole(&newer, dirs[i]);
        /* one more folder is no harm: a save that was sealed while the others looked for the newest is set aside */
        snprintf(root, sizeof(root), "%s/checkpoints", scratch_path(dirs[i]));
        assert_int_equal(ash_checkpoint_count(root), STEPS);
        for (int step = 1; step <= STEPS; step++) {
            char name[PATH_MAX + 64];

            snprintf(name, sizeof(name), "%s/checkpoints/step-%06d", scratch_path(dirs[i]), step);
            if (ash_commit_verify(name, true, NULL, &err) < 0) fail_msg("%s", err.text);
        }
        run_well(&(struct run_setup){.dir = dirs[i], .resume = true}, &result); /* and nothing is left to do */
        assert_whole(&result, dirs[i]);
    }
}

static void test_training_goes_on_from_a_folder(void **state)
{
    struct ash_run_result result = {0};
    static struct log_line from_new[MANY_STEPS], from_old[MANY_STEPS];
    char from[PATH_MAX + 64];

    (void)state;
    snprintf(from, sizeof(from), "model.from=%s/model", scratch_path("whole"));
    run_well(&(struct run_setup){.dir = "more", .settings = SETTINGS(from, "train.steps=3")}, &result);
    read_log("whole", from_new);
    read_log("more", from_old);
    assert_string_not_equal(from_new[0].loss_bits, from_old[0].loss_bits);
    run_well(&(struct run_setup){.dir = "more2", .settings = SETTINGS(from, "train.steps=3"), .stop_after = 1},
             &result);
    run_well(&(struct run_setup){.dir = "more2", .settings = SETTINGS(from, "train.steps=3"), .resume = true}, &result);
    assert_same_log("more2", "more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_leaves_everything_behind),
        cmocka_unit_test(test_stopped_and_resumed_at_every_step),
        cmocka_unit_test(test_stopped_at_all_steps_of_one_run),
        cmocka_unit_test(test_bf16_resumes_to_the_same_bits),
        cmocka_unit_test(test_a_second_start_needs_a_decision),
        cmocka_unit_test(test_changes_that_would_change_bits_are_named),
        cmocka_unit_test(test_other_data_are_noticed),
        cmocka_unit_test(test_another_arithmetic_is_noticed),
        cmocka_unit_test(test_another_order_is_noticed),
        cmocka_unit_test(test_a_damaged_checkpoint_gives_way_to_the_one_before),
        cmocka_unit_test(test_nothing_but_damage_is_an_error),
        cmocka_unit_test(test_old_checkpoints_are_removed),
        cmocka_unit_test(test_a_full_disk_does_not_end_the_run),
        cmocka_unit_test(test_a_failed_last_save_is_an_error),
        cmocka_unit_test(test_a_hopeless_run_ends_saved),
        cmocka_unit_test(test_one_process_at_a_time),
        cmocka_unit_test(test_a_process_that_was_left_behind_harms_nothing),
        cmocka_unit_test(test_training_goes_on_from_a_folder),
    };
    return cmocka_run_group_tests(tests, setup_group, scratch_close);
}
