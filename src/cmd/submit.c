/* ashlar submit: a job file to this machine, Slurm or Kubernetes. */
#include "cmd/cmd.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "cmd/jobs_priv.h"
#include "orchestrate/job/jobs.h"
#include "orchestrate/job/spec.h"
#include "train/job/job.h"
#include "train/layout/mesh.h"
#include "train/run/control.h"

struct submit_flags {
    const char *to, *program, *kind, *scheduler;
    bool dry_run, wait, follow, allow_change;
};

#define FIELD(name) offsetof(struct submit_flags, name)
static const struct ash_opt submit_opts[] = {
    {"to", ASH_OPT_STRING, FIELD(to), NULL,
     "local, slurm or kubernetes; default: Slurm or Kubernetes where one is known, else local", 0, 0, NULL},
    {"dry_run", ASH_OPT_BOOL, FIELD(dry_run), NULL, "print exactly what would be sent, and send nothing", 0, 0, NULL},
    {"wait", ASH_OPT_BOOL, FIELD(wait), NULL, "wait for the end of the job; the exit code is the job's", 0, 0, NULL},
    {"follow", ASH_OPT_BOOL, FIELD(follow), NULL, "the same, and print its output", 0, 0, NULL},
    {"allow_change", ASH_OPT_BOOL, FIELD(allow_change), NULL,
     "a run continues although the job changed in something that changes results, as more steps do", 0, 0, NULL},
    {"kind", ASH_OPT_STRING, FIELD(kind), NULL,
     "on Kubernetes: job, jobset, volcano, trainjob, pytorchjob or hyperpod; for serve: deployment, statefulset or "
     "leaderworkerset; default: job, or deployment for serve",
     0, 0, NULL},
    {"scheduler", ASH_OPT_STRING, FIELD(scheduler), NULL, "on Kubernetes: default, kueue, volcano or kai", 0, 0, NULL},
    {"program", ASH_OPT_STRING, FIELD(program), NULL,
     "path of ashlar on the nodes; default: this one's, and /usr/bin/ashlar on Kubernetes", 0, 0, NULL},
};
static const struct ash_opt_table submit_table = {"", "flags", submit_opts, ASH_COUNT(submit_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar submit JOB.yaml [section.setting=value ...] [--to local|slurm|kubernetes]",
    .about =
        "Hands a job to a cluster. The section `job` of the file says what it asks for; the other sections are the\n"
        "command's own. The same file runs alike everywhere: same ranks, same bits, same words for what went "
        "wrong.",
    .examples = "  ashlar submit job.yaml --dry-run\n"
                "  ashlar submit job.yaml job.nodes=8 job.time=24h --to slurm --follow\n"
                "  ashlar jobs why 1234",
};

/* The request from the arguments and the file. */
struct request {
    struct submit_flags flags;
    struct ash_spec spec;
    char name[ASH_SPEC_NAME_MAX + 1];
    const char *settings[ASH_SUBMISSION_WORDS_MAX];
    size_t setting_count;
    struct ash_cmd_serve_words serve_words; /* settings of a server */
};

/* The words that override the file go to the nodes as they are; those of the section `job` are for us. */
static void keep_settings(struct request *request, int argc, char **argv)
{
    for (int i = 1; i < argc && request->setting_count < ASH_COUNT(request->settings); i++)
        if (argv[i][0] != '-' && strchr(argv[i], '=') != NULL && strncmp(argv[i], "job.", 4) != 0)
            request->settings[request->setting_count++] = argv[i];
}

/* Does the mesh fit the requested ranks? */
static int check_mesh(struct ash_job *job, const struct ash_spec *spec, struct ash_err *err)
{
    int64_t spares = job->recover.spares > 0 ? job->recover.spares : spec->spares * spec->procs;
    int64_t ranks = (int64_t)ash_spec_all_nodes(spec) * spec->procs - spares, data;
    int rc;

    if (ranks < 1)
        return ash_err_set(err, -EINVAL, "recover.spares=%lld leaves none of the job's ranks to train",
                           (long long)spares);
    rc = ash_mesh_resolve(&job->mesh, (size_t)ranks, err);
    data = job->mesh.dp * job->mesh.fsdp * job->mesh.ep;
    if (rc == 0 && data > job->train.grains)
        return ash_err_set(err, -EINVAL,
                           "%lld ranks (job.nodes=%lld times job.procs=%lld) share the sequences of a step, and there "
                           "are %lld grains: set train.grains to at least %lld, or ask for fewer nodes",
                           (long long)data, (long long)spec->nodes, (long long)spec->procs,
                           (long long)job->train.grains, (long long)data);
    return rc;
}

/* Each rank needs a GPU, or its share of one. */
static int check_gpus(const struct ash_job *job, const struct ash_spec *spec, struct ash_err *err)
{
    long long per = (long long)job->runtime.ranks_per_gpu, procs = (long long)spec->procs, gpus = (long long)spec->gpus;

    if (gpus == 0 || procs <= gpus * per || (job->runtime.backend != NULL && job->runtime.backend[0] != '\0')) return 0;
    return ash_err_set(err, -EINVAL,
                       "job.procs=%lld ranks of a node cannot have a GPU each of job.gpus=%lld: set job.procs=%lld, or "
                       "runtime.ranks_per_gpu=%lld (runtime.backend names CPU kernels for ranks that leave GPUs alone)",
                       procs, gpus, gpus * per, (procs + gpus - 1) / gpus);
}

/* A training job that would be refused on every node is refused here. */
static int check_training(const struct request *request, const char *job_file, struct ash_err *err)
{
    struct ash_job job;
    struct ash_opt_binding bindings[ASH_JOB_SECTIONS];
    struct ash_opts *opts = NULL;
    int rc;

    if (strcmp(request->spec.command, "train") != 0) return 0;
    ash_job_bind(&job, bindings);
    rc = ash_opts_open(bindings, ASH_COUNT(bindings), &opts, err);
    if (rc < 0) return rc;
    ash_opts_pass_others(opts); /* sections that are not the training's (group, fabric): the nodes judge them */
    rc = ash_opts_load_yaml(opts, job_file, err);
    for (size_t i = 0; i < request->setting_count && rc == 0; i++) {
        char key[256];
        const char *equals = strchr(request->settings[i], '=');

        snprintf(key, sizeof(key), "%.*s", (int)(equals - request->settings[i]), request->settings[i]);
        rc = ash_opts_set(opts, key, equals + 1, NULL, err);
    }
    if (rc == 0) rc = ash_job_resolve(&job, err);
    if (rc == 0) rc = check_gpus(&job, &request->spec, err);
    if (rc == 0) rc = check_mesh(&job, &request->spec, err);
    ash_opts_close(opts);
    return rc;
}

/* A server has no job file: its settings become words. */
static int check_serving(struct request *request, const char *job_file, struct ash_err *err)
{
    int rc;

    if (strcmp(request->spec.command, "serve") != 0) return 0;
    rc = ash_cmd_serve_words_read(job_file, request->settings, request->setting_count, &request->serve_words, err);
    if (rc < 0) return rc;
    request->setting_count = request->serve_words.count;
    for (size_t i = 0; i < request->setting_count; i++)
        request->settings[i] = request->serve_words.items[i];
    return 0;
}

/* Paths as nodes see them: absolute. */
struct places {
    char file[PATH_MAX], out[PATH_MAX], program[PATH_MAX];
};

static int find_places(const struct request *request, const char *job_file, struct places *places, struct ash_err *err)
{
    const char *out = request->spec.out;
    char here[PATH_MAX];
    bool is_absolute = out != NULL && (out[0] == '/' || strstr(out, "://") != NULL);
    int used;

    memset(places->program, 0, sizeof(places->program));
    if (realpath(job_file, places->file) == NULL || getcwd(here, sizeof(here)) == NULL ||
        readlink("/proc/self/exe", places->program, sizeof(places->program) - 1) < 0)
        return ash_err_set(err, -errno, "%s: %s", job_file, strerror(errno));
    used = out == NULL ? snprintf(places->out, sizeof(places->out), "%s/runs/%s", here, request->spec.name)
                       : snprintf(places->out, sizeof(places->out), "%s%s%s", is_absolute ? "" : here,
                                  is_absolute ? "" : "/", out);
    if (used < 0 || (size_t)used >= sizeof(places->out))
        return ash_err_set(err, -ENAMETOOLONG, "job.out: the path is too long");
    return 0;
}

static int print_submission(const struct ash_jobs_ops *ops, const struct ash_submission *submission,
                            struct ash_err *err)
{
    struct ash_str text = {0};
    int rc = ops->print(submission, &text, err);

    if (rc == 0) fputs(text.data, stdout);
    ash_str_fini(&text);
    return rc;
}

/* A folder that a run has now is not given to a second one. Folders of pods are not seen from here. */
static int check_free(const struct ash_jobs_ops *ops, const char *out, struct ash_err *err)
{
    if (ops == &ash_jobs_kubernetes || !ash_run_is_going(out)) return 0;
    return ash_err_set(err, -EBUSY,
                       "%s: another process is training into this folder: wait for its end, or give job.out another",
                       out);
}

static int submit(const struct request *request, const char *job_file, struct ash_err *err)
{
    const struct submit_flags *flags = &request->flags;
    char id[ASH_JOBS_ID_BYTES];
    const struct ash_jobs_ops *ops = NULL;
    struct places places;
    struct ash_submission submission = {.spec = &request->spec,
                                        .program = flags->program != NULL ? flags->program : places.program,
                                        .is_program_given = flags->program != NULL,
                                        .job_file = places.file,
                                        .out = places.out,
                                        .settings = request->settings,
                                        .setting_count = request->setting_count,
                                        .allow_change = flags->allow_change,
                                        .kind = flags->kind,
                                        .scheduler = flags->scheduler};
    int rc = ash_jobs_choose(flags->to, &ops, err);

    if (rc == 0 && strcmp(request->spec.command, "serve") == 0 && ops == &ash_jobs_local && request->spec.nodes > 1)
        rc = ash_err_set(err, -EINVAL, "job.nodes is %lld: on this machine a server is one process (job.nodes=1)",
                         (long long)request->spec.nodes);
    if (rc == 0) rc = find_places(request, job_file, &places, err);
    if (rc < 0) return rc;
    if (flags->dry_run) return print_submission(ops, &submission, err);
    rc = check_free(ops, places.out, err);
    if (rc < 0) return rc;
    rc = ops->submit(&submission, id, err);
    if (rc < 0) return rc;
    printf("submitted %s to %s\n", id, ops->name);
    fflush(stdout);
    if (ops->use_namespace != NULL) rc = ash_jobs_use_namespace(ops, request->spec.kube_namespace, err);
    if (rc < 0) return rc;
    return flags->wait || flags->follow ? ash_cmd_await_job(ops, id, flags->follow, err) : 0;
}

static int run_submit(int argc, char **argv)
{
    struct request request = {0};
    struct ash_opt_binding bindings[1 + ASH_SPEC_SECTIONS];
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    const char *words[1] = {NULL};
    size_t count = 0;
    bool help;
    int code;

    bindings[0] = (struct ash_opt_binding){&submit_table, &request.flags};
    ash_spec_bind(&request.spec, bindings + 1);
    if (ash_opts_open(bindings, ASH_COUNT(bindings), &opts, &err) < 0) return ash_cmd_fail(&err);
    ash_opts_pass_others(opts);
    code = ash_cmd_parse(&usage, opts, argc, argv, words, ASH_COUNT(words), &count);
    if (code == ASH_CMD_GO && count == 0) code = ash_cmd_misuse("submit", "what to submit? give a job file");
    if (code == ASH_CMD_GO) {
        keep_settings(&request, argc, argv);
        if (ash_opts_load_yaml(opts, words[0], &err) < 0 || ash_opts_set_env(opts, &err) < 0 ||
            ash_opts_parse_args(opts, argc - 1, argv + 1, words, ASH_COUNT(words), &count, &help, &err) < 0 ||
            ash_spec_resolve(&request.spec, words[0], request.name, &err) < 0 ||
            check_training(&request, words[0], &err) < 0 || check_serving(&request, words[0], &err) < 0) {
            ash_cmd_fail(&err);
            code = 2; /* starting it again does not help */
        } else {
            code = submit(&request, words[0], &err);
            if (code < 0) code = (ash_cmd_fail(&err), code == -EBUSY ? 2 : 1);
        }
    }
    ash_cmd_serve_words_free(&request.serve_words);
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_submit = {"submit", "hand a job to this machine, Slurm or Kubernetes", run_submit};
