/* ashlar checkpoint: checkpoints of training runs, in folders and in S3: list, check, remove, copy. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/progress_bar.h"
#include "cmd/units.h"
#include "storage/tier/tier.h"
#include "train/job/job.h"
#include "train/save/place.h"

#define WORDS_MAX 2
#define JOB_FILE "job.yaml" /* of a run's folder */
#define JOB_BYTES_MAX ((size_t)1 << 20)

struct flags {
    int64_t step, keep;
    bool wants_json;
};

/* A subcommand. */
struct form {
    const struct ash_cmd_usage *usage;
    const struct ash_opt *opts;
    size_t opt_count, word_count;
    int (*respond)(const struct flags *flags, struct ash_place *const *places, struct ash_err *err);
};

#define FLAG(name) offsetof(struct flags, name)
#define STEP                                                                                                           \
    {                                                                                                                  \
        "step", ASH_OPT_INT, FLAG(step), "-1", "the checkpoint of this step; -1: the newest", -1, 1e15, NULL           \
    }

/* ---- what they share --------------------------------------------------------------------------------------------- */

/* A place, or a run's folder, which has its checkpoints in a folder of that name. */
static int open_place(const char *word, const struct ash_s3_opts *s3, struct ash_place **place_out, struct ash_err *err)
{
    char inside[PATH_MAX];

    if (!ash_tier_is_url(word) && ash_path_join(inside, sizeof(inside), word, "checkpoints") == 0 &&
        ash_path_exists(inside))
        return ash_place_open(inside, s3, place_out, err);
    return ash_place_open(word, s3, place_out, err);
}

static int open_and_respond(const struct form *form, const struct flags *flags, const struct ash_s3_opts *s3,
                            const char *const *words)
{
    struct ash_place *places[WORDS_MAX] = {0};
    struct ash_err err = {0};
    int rc = 0;

    ash_interrupt_install();
    for (size_t i = 0; rc == 0 && i < form->word_count; i++)
        rc = open_place(words[i], s3, &places[i], &err);
    if (rc == 0) rc = form->respond(flags, places, &err);
    for (size_t i = 0; i < form->word_count; i++)
        ash_place_close(places[i]);
    if (rc == -EINTR && ash_interrupt_requested()) return ash_cmd_stopped();
    return rc < 0 ? ash_cmd_fail(&err) : rc;
}

static int form_run(const struct form *form, int argc, char **argv)
{
    const struct ash_opt_table table = {"", "options", form->opts, form->opt_count};
    struct flags flags = {0};
    struct ash_s3_opts s3 = {0};
    const struct ash_opt_binding bindings[] = {{&table, &flags}, {&ash_s3_table, &s3}};
    const char *words[WORDS_MAX] = {0};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    size_t count = 0;
    int code;

    if (ash_opts_open(bindings, ASH_COUNT(bindings), &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(form->usage, opts, argc, argv, words, form->word_count, &count);
    if (code == ASH_CMD_GO && count < form->word_count) {
        ash_log(ASH_LOG_ERROR, "name %s (`ashlar checkpoint %s --help` explains)",
                form->word_count == 1 ? "a run's folder, or a place of checkpoints" : "two places: from and to",
                argv[0]);
        code = 2;
    }
    if (code == ASH_CMD_GO) code = open_and_respond(form, &flags, &s3, words);
    ash_opts_close(opts);
    return code;
}

/* Bytes of a long check or copy. */
struct progress {
    struct ash_progress_bar bar;
    uint64_t done_bytes, total_bytes;
};

static int add_progress(void *ctx, uint64_t bytes, struct ash_err *err)
{
    struct progress *progress = ctx;
    char done[ASH_UNITS_BYTES], total[ASH_UNITS_BYTES];

    progress->done_bytes += bytes;
    if (ash_interrupt_requested()) return ash_err_set(err, -EINTR, "stopped");
    if (ash_progress_bar_due(&progress->bar))
        ash_progress_bar_say(&progress->bar, "%s of %s", ash_units_bytes(progress->done_bytes, done, sizeof(done)),
                             ash_units_bytes(progress->total_bytes, total, sizeof(total)));
    return 0;
}

/* A run that saves elsewhere says so in its job.yaml. */
static int say_none(struct ash_place *place, struct ash_err *err)
{
    const char *url = ash_place_url(place);
    struct ash_job job = {0};
    struct ash_opts *opts = NULL;
    char path[PATH_MAX], *yaml = NULL;
    size_t size = 0;
    int rc = ash_err_set(err, -ENOENT, "%s: there is no complete checkpoint", url);

    if (ash_tier_is_url(url) || ash_path_join(path, sizeof(path), url, JOB_FILE) < 0 ||
        ash_file_read(path, JOB_BYTES_MAX, &yaml, &size, NULL) < 0)
        return rc;
    if (ash_job_parse(yaml, size, JOB_FILE, &job, &opts, NULL) == 0 && job.save.to.count > 0)
        rc = ash_err_set(err, -ENOENT, "%s: there is no checkpoint here; the run saves to %s (save.to): name that", url,
                         job.save.to.items[0]);
    ash_opts_close(opts);
    free(yaml);
    return rc;
}

/* A step that is not there: which are? steps [count], newest first. */
static int check_step(const struct ash_place *place, uint64_t step, const uint64_t *steps, size_t count,
                      struct ash_err *err)
{
    for (size_t i = 0; i < count; i++)
        if (steps[i] == step) return 0;
    return ash_err_set(err, -ENOENT,
                       "%s has no complete checkpoint of step %" PRIu64 ": it has %zu, of steps %" PRIu64 " to %" PRIu64
                       " (`ashlar checkpoint ls`)",
                       ash_place_url(place), step, count, steps[count - 1], steps[0]);
}

/* The step that is asked for, or the newest; and how many bytes it has. */
static int choose_step(const struct flags *flags, struct ash_place *place, uint64_t *step_out, uint64_t *bytes_out,
                       struct ash_err *err)
{
    struct ash_place_manifest manifest = {0};
    uint64_t *steps = NULL;
    size_t count = 0;
    int rc = ash_place_steps(place, &steps, &count, err);

    if (rc < 0) return rc;
    if (count == 0)
        rc = say_none(place, err);
    else
        *step_out = flags->step >= 0 ? (uint64_t)flags->step : steps[0];
    if (rc == 0) rc = check_step(place, *step_out, steps, count, err);
    free(steps);
    if (rc == 0) rc = ash_place_read_manifest(place, *step_out, &manifest, err);
    if (rc == 0) *bytes_out = ash_place_manifest_bytes(manifest.json);
    ash_place_manifest_fini(&manifest);
    return rc;
}

/* ---- ls ---------------------------------------------------------------------------------------------------------- */

static const struct ash_cmd_usage ls_usage = {
    .synopsis = "ashlar checkpoint ls PLACE",
    .about =
        "Lists the complete checkpoints of a place, newest first. PLACE is a run's folder, a folder of checkpoints,\n"
        "or s3://bucket/prefix.",
    .examples = "  ashlar checkpoint ls runs/gpt2\n  ashlar checkpoint ls s3://runs/gpt2",
};
static const struct ash_opt ls_opts[] = {{"json", ASH_OPT_BOOL, FLAG(wants_json), "false", "print JSON", 0, 0, NULL}};

/* One line, or one object of list. */
static int show_one(struct ash_place *place, uint64_t step, json_t *list, struct ash_err *err)
{
    struct ash_place_manifest manifest = {0};
    const char *hash;
    char size[ASH_UNITS_BYTES];
    uint64_t bytes;
    int rc = ash_place_read_manifest(place, step, &manifest, err);

    if (rc < 0 && list == NULL) printf("%10" PRIu64 "  %s\n", step, err->text);
    if (rc < 0) return rc == -EBADMSG || rc == -ENOTSUP ? 0 : rc;
    bytes = ash_place_manifest_bytes(manifest.json);
    hash = json_string_value(json_object_get(json_object_get(manifest.json, "state"), "state_hash"));
    if (list == NULL)
        printf("%10" PRIu64 "  %10s  %s\n", step, ash_units_bytes(bytes, size, sizeof(size)),
               hash != NULL ? hash : "-");
    else if (json_array_append_new(list, json_pack("{s:I, s:I, s:s?}", "step", (json_int_t)step, "size",
                                                   (json_int_t)bytes, "state_hash", hash)) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory");
    ash_place_manifest_fini(&manifest);
    return rc;
}

static int ls_respond(const struct flags *flags, struct ash_place *const *places, struct ash_err *err)
{
    json_t *list = flags->wants_json ? json_array() : NULL;
    uint64_t *steps = NULL;
    size_t count = 0;
    int rc = ash_place_steps(places[0], &steps, &count, err);

    if (rc == 0 && count == 0 && list == NULL) rc = say_none(places[0], err);
    if (rc == 0 && list == NULL) printf("%10s  %10s  %s\n", "step", "size", "state hash");
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = show_one(places[0], steps[i], list, err);
    if (rc == 0 && list != NULL) rc = ash_cmd_print_json(json_incref(list), err);
    json_decref(list);
    free(steps);
    return rc;
}

static int ls_run(int argc, char **argv)
{
    static const struct form form = {&ls_usage, ls_opts, ASH_COUNT(ls_opts), 1, ls_respond};

    return form_run(&form, argc, argv);
}

/* ---- verify ------------------------------------------------------------------------------------------------------ */

static const struct ash_cmd_usage verify_usage = {
    .synopsis = "ashlar checkpoint verify PLACE [--step N]",
    .about = "Reads a checkpoint, the newest by default, and holds every piece of it to its checksum.",
    .examples = "  ashlar checkpoint verify runs/gpt2\n  ashlar checkpoint verify s3://runs/gpt2 --step 5000",
};
static const struct ash_opt verify_opts[] = {STEP};

static int verify_respond(const struct flags *flags, struct ash_place *const *places, struct ash_err *err)
{
    struct progress progress = {0};
    uint64_t step = 0;
    char size[ASH_UNITS_BYTES];
    int rc = choose_step(flags, places[0], &step, &progress.total_bytes, err);

    ash_progress_bar_init(&progress.bar);
    if (rc == 0) rc = ash_place_verify(places[0], step, add_progress, &progress, err);
    ash_progress_bar_clear(&progress.bar);
    if (rc == 0)
        printf("step %" PRIu64 ": right, %s\n", step, ash_units_bytes(progress.total_bytes, size, sizeof(size)));
    return rc;
}

static int verify_run(int argc, char **argv)
{
    static const struct form form = {&verify_usage, verify_opts, ASH_COUNT(verify_opts), 1, verify_respond};

    return form_run(&form, argc, argv);
}

/* ---- prune ------------------------------------------------------------------------------------------------------- */

static const struct ash_cmd_usage prune_usage = {
    .synopsis = "ashlar checkpoint prune PLACE --keep N",
    .about = "Removes all complete checkpoints of a place but the newest N.",
    .examples = "  ashlar checkpoint prune runs/gpt2 --keep 2",
};
static const struct ash_opt prune_opts[] = {
    {"keep", ASH_OPT_INT, FLAG(keep), "0", "newest checkpoints that stay, at least 1", 0, 1e6, NULL}};

static int prune_respond(const struct flags *flags, struct ash_place *const *places, struct ash_err *err)
{
    size_t count = 0;
    int rc;

    if (flags->keep < 1) return ash_err_set(err, -EINVAL, "say how many checkpoints stay: --keep N, at least 1");
    rc = ash_place_prune(places[0], (size_t)flags->keep, 0, &count, err);
    if (rc == 0) printf("%zu removed\n", count);
    return rc;
}

static int prune_run(int argc, char **argv)
{
    static const struct form form = {&prune_usage, prune_opts, ASH_COUNT(prune_opts), 1, prune_respond};

    return form_run(&form, argc, argv);
}

/* ---- copy -------------------------------------------------------------------------------------------------------- */

static const struct ash_cmd_usage copy_usage = {
    .synopsis = "ashlar checkpoint copy FROM TO [--step N]",
    .about =
        "Copies a checkpoint, the newest by default. Every piece is held to its checksum on the way; the manifest is\n"
        "written last, so that the copy is whole or does not count.",
    .examples =
        "  ashlar checkpoint copy runs/gpt2 s3://runs/gpt2\n  ashlar checkpoint copy s3://runs/gpt2 /mnt/nvme/gpt2",
};
static const struct ash_opt copy_opts[] = {STEP};

static int copy_respond(const struct flags *flags, struct ash_place *const *places, struct ash_err *err)
{
    struct progress progress = {0};
    uint64_t step = 0;
    char size[ASH_UNITS_BYTES];
    int rc = choose_step(flags, places[0], &step, &progress.total_bytes, err);

    ash_progress_bar_init(&progress.bar);
    if (rc == 0) rc = ash_place_copy(places[0], places[1], step, add_progress, &progress, err);
    ash_progress_bar_clear(&progress.bar);
    if (rc == 0)
        printf("step %" PRIu64 ": %s to %s\n", step, ash_units_bytes(progress.total_bytes, size, sizeof(size)),
               ash_place_url(places[1]));
    return rc;
}

static int copy_run(int argc, char **argv)
{
    static const struct form form = {&copy_usage, copy_opts, ASH_COUNT(copy_opts), 2, copy_respond};

    return form_run(&form, argc, argv);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static const struct ash_cmd ls_cmd = {"ls", "list checkpoints", ls_run};
static const struct ash_cmd verify_cmd = {"verify", "read a checkpoint and compare its checksums", verify_run};
static const struct ash_cmd prune_cmd = {"prune", "remove all but the newest checkpoints", prune_run};
static const struct ash_cmd copy_cmd = {"copy", "copy a checkpoint to another place", copy_run};
static const struct ash_cmd *const commands[] = {&ls_cmd, &verify_cmd, &prune_cmd, &copy_cmd};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar checkpoint", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_checkpoint = {"checkpoint", "checkpoints in folders and in S3: list, check, remove, copy",
                                           run};
