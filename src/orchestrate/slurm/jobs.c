/* Jobs under Slurm, through its own programs: sbatch, squeue, scontrol, scancel. Nothing is linked, so any version will
 * do; output formats are set field by field. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/command.h"
#include "base/file.h"
#include "orchestrate/job/jobs.h"
#include "orchestrate/slurm/queue.h"
#include "orchestrate/slurm/script.h"
#include "orchestrate/slurm/usage.h"

#define LIMIT_S 30.0        /* a controller that is busy answers late */
#define USAGE_LIMIT_S 300.0 /* a database that has years of jobs, later */

/* Run one of Slurm's programs; its output is in *text_out (may be NULL), which the caller frees. An exit code other
 * than 0 is -EIO with its message. */
static int run(const char *const *argv, const char *input, struct ash_str *text_out, struct ash_err *err)
{
    const struct ash_command command = {.argv = argv, .input = input, .limit_s = LIMIT_S};
    int rc = ash_command_output(&command, text_out, err);

    return rc == -ENOENT ? ash_err_prefix(err, rc, "Slurm is not installed here") : rc;
}

static bool is_here(void)
{
    struct ash_str text = {0};
    int rc = run((const char *const[]){"scontrol", "ping", NULL}, NULL, &text, NULL);
    bool is_up = rc == 0 && text.data != NULL && strstr(text.data, "UP") != NULL;

    ash_str_fini(&text);
    return is_up;
}

static int print(const struct ash_submission *submission, struct ash_str *text_out, struct ash_err *err)
{
    return ash_slurm_script(submission, text_out, err);
}

/* The partition's limits for one job: Slurm accepts more, and lets it wait for ever (EnforcePartLimits=NO). */
static int check_caps(const struct ash_spec *spec, const char *partition, struct ash_err *err)
{
    struct ash_str text = {0};
    char value[64] = "";
    double limit_s = 0;
    unsigned long most;
    int rc =
        run((const char *const[]){"scontrol", "--oneliner", "show", "partition", partition, NULL}, NULL, &text, err);

    if (rc < 0) return rc;
    ash_slurm_value(text.data, "MaxNodes", value, sizeof(value));
    most = strtoul(value, NULL, 10); /* UNLIMITED: 0 */
    ash_slurm_value(text.data, "MaxTime", value, sizeof(value));
    ash_str_fini(&text);
    if (most > 0 && ash_spec_all_nodes(spec) > most)
        return ash_err_set(err, -EINVAL,
                           "the job asks for %zu nodes (job.nodes and job.spares), and partition %s gives a job %lu at "
                           "most",
                           ash_spec_all_nodes(spec), partition, most);
    if (ash_slurm_duration(value, &limit_s) == 0 && spec->time_s > limit_s)
        return ash_err_set(err, -EINVAL, "job.time is %s, and partition %s gives a job %s at most", spec->time,
                           partition, value);
    return 0;
}

/* A job that can never start is refused here: some Slurms would let it wait for ever. */
static int check_room(const struct ash_spec *spec, struct ash_err *err)
{
    struct ash_str text = {0};
    char partition[128];
    size_t nodes = 0;
    const char *const argv[] = {"sinfo",     "--noheader", "--format=%P|%D", spec->queue != NULL ? "--partition" : NULL,
                                spec->queue, NULL};
    int rc = run(argv, NULL, &text, err);

    if (rc == 0) nodes = ash_slurm_partition_nodes(text.data, spec->queue, partition, sizeof(partition));
    ash_str_fini(&text);
    if (rc < 0) return rc;
    if (partition[0] == '\0' && spec->queue != NULL)
        return ash_err_set(err, -EINVAL, "job.queue: Slurm has no partition '%.60s' (sinfo lists them)", spec->queue);
    if (partition[0] != '\0' && ash_spec_all_nodes(spec) > nodes)
        return ash_err_set(err, -EINVAL,
                           "the job asks for %zu nodes (job.nodes and job.spares), and partition %s has %zu",
                           ash_spec_all_nodes(spec), partition, nodes);
    return partition[0] != '\0' ? check_caps(spec, partition, err) : 0;
}

static int submit(const struct ash_submission *submission, char id_out[ASH_JOBS_ID_BYTES], struct ash_err *err)
{
    struct ash_str script = {0}, answer = {0};
    int rc = ash_slurm_script(submission, &script, err);

    if (rc == 0) rc = check_room(submission->spec, err);
    if (rc == 0) rc = ash_dir_make(submission->out, err); /* where its output goes */
    if (rc == 0) rc = run((const char *const[]){"sbatch", "--parsable", NULL}, script.data, &answer, err);
    if (rc == 0) {
        answer.data[strcspn(answer.data, ";\n")] = '\0';
        snprintf(id_out, ASH_JOBS_ID_BYTES, "%s", answer.data);
    }
    ash_str_fini(&script);
    ash_str_fini(&answer);
    return rc;
}

/* Jobs that squeue still has: of this user, or the one named. */
static int list_queue(const char *id, struct ash_jobs_list *list_out, struct ash_err *err)
{
    char user[32];
    struct ash_str text = {0};
    const char *argv[] = {"squeue",
                          "--noheader",
                          "--states=all",
                          "--format=" ASH_SLURM_QUEUE_FORMAT,
                          id != NULL ? "--jobs" : "--user",
                          id != NULL ? id : user,
                          NULL};
    int rc;

    snprintf(user, sizeof(user), "%u", (unsigned)getuid());
    rc = run(argv, NULL, &text, err);
    if (rc == 0) rc = ash_slurm_read_queue(text.data, ash_clock_wall_s(), list_out, err);
    ash_str_fini(&text);
    return rc;
}

/* Where its output goes, and its exit code. */
static void add_facts(const char *id, struct ash_jobs_entry *entry)
{
    struct ash_str text = {0};
    char code[32];

    if (run((const char *const[]){"scontrol", "--oneliner", "show", "job", id, NULL}, NULL, &text, NULL) == 0) {
        ash_slurm_value(text.data, "StdOut", entry->log, sizeof(entry->log));
        ash_slurm_value(text.data, "ExitCode", code, sizeof(code)); /* code:signal */
        if (ash_jobs_has_ended(entry->phase)) entry->code = (int)strtol(code, NULL, 10);
    }
    ash_str_fini(&text);
}

static int list(const char *id, struct ash_jobs_list *list_out, struct ash_err *err)
{
    size_t before = list_out->count;
    int rc = list_queue(id, list_out, err);

    if (id == NULL || (rc < 0 && rc != -EIO)) return rc;
    if (rc == -EIO || list_out->count == before)
        return ash_err_set(err, -ENOENT, "Slurm knows no job %.60s (it forgets them some minutes after their end)", id);
    add_facts(id, &list_out->entries[before]);
    return 0;
}

static int show(const char *id, struct ash_str *text_out, struct ash_err *err)
{
    struct ash_str text = {0};
    int rc = run((const char *const[]){"scontrol", "show", "job", id, NULL}, NULL, &text, err);

    if (rc == 0) rc = ash_str_adds(text_out, text.data);
    ash_str_fini(&text);
    return rc < 0 ? ash_err_prefix(err, rc, "job %.60s", id) : 0;
}

static int why(const char *id, struct ash_str *text_out, struct ash_err *err)
{
    struct ash_jobs_list jobs = {0};
    struct ash_str facts = {0}, others = {0}, nodes = {0}, factors = {0};
    const char *const sprio[] = {"sprio", "--noheader", "--jobs", id, "--format=" ASH_SLURM_FACTORS_FORMAT, NULL};
    int rc = list(id, &jobs, err);

    if (rc == 0) rc = run((const char *const[]){"scontrol", "--oneliner", "show", "job", id, NULL}, NULL, &facts, err);
    if (rc == 0)
        rc = run((const char *const[]){"squeue", "--noheader", "--states=running", "--format=%i|%j|%u|%D|%L|%P", NULL},
                 NULL, &others, err);
    if (rc == 0)
        rc = run((const char *const[]){"sinfo", "--noheader", "--format=%P|%t|%D|%E", NULL}, NULL, &nodes, err);
    if (rc == 0) (void)run(sprio, NULL, &factors, NULL); /* where priorities are not multifactor there are none */
    if (rc == 0)
        rc = ash_slurm_explain(&(struct ash_slurm_evidence){.job = &jobs.entries[0],
                                                            .facts = facts.data,
                                                            .running = others.data,
                                                            .nodes = nodes.data,
                                                            .factors = factors.data},
                               text_out, err);
    ash_str_fini(&facts);
    ash_str_fini(&others);
    ash_str_fini(&nodes);
    ash_str_fini(&factors);
    ash_jobs_free(&jobs);
    return rc;
}

/* Can this running job save in its own time? One of ours that runs steps now. */
static bool saves_itself(const char *id)
{
    struct ash_str script = {0}, steps = {0};
    bool is_ours =
        run((const char *const[]){"scontrol", "write", "batch_script", id, "-", NULL}, NULL, &script, NULL) == 0 &&
        script.data != NULL && strstr(script.data, "\n" ASH_SLURM_MARK "\n") != NULL;
    bool has_steps =
        is_ours && run((const char *const[]){"squeue", "--noheader", "--steps", "--jobs", id, "--format=%i", NULL},
                       NULL, &steps, NULL) == 0;

    if (has_steps && steps.data != NULL) {
        char *rest = steps.data, *line;

        for (has_steps = false; (line = strsep(&rest, "\n")) != NULL;)
            has_steps = has_steps || (strchr(line, '.') != NULL && strstr(line, ".batch") == NULL &&
                                      strstr(line, ".extern") == NULL);
    }
    ash_str_fini(&script);
    ash_str_fini(&steps);
    return has_steps;
}

/* A plain scancel gives a job KillWait, which is less than a large save takes. So the steps get SIGTERM, and have
 * job.notice; a job that must not be queued again is cancelled by its own script when they are through. */
static int stop(const char *id, struct ash_err *err)
{
    struct ash_jobs_list jobs = {0};
    char update[ASH_JOBS_ID_BYTES + 8];
    enum ash_jobs_phase phase;
    int rc = list(id, &jobs, err);

    phase = rc == 0 ? jobs.entries[0].phase : ASH_JOBS_FAILED;
    ash_jobs_free(&jobs);
    if (rc < 0) return rc;
    if (ash_jobs_has_ended(phase))
        return ash_err_set(err, -ESRCH, "job %.60s does not run: it is %s", id, ash_jobs_phase_name(phase));
    if (phase != ASH_JOBS_RUNNING || !saves_itself(id))
        return run((const char *const[]){"scancel", id, NULL}, NULL, NULL, err);
    snprintf(update, sizeof(update), "JobId=%s", id);
    rc = run((const char *const[]){"scontrol", "update", update, "Requeue=0", NULL}, NULL, NULL, err);
    return rc < 0 ? rc : run((const char *const[]){"scancel", "--signal=TERM", id, NULL}, NULL, NULL, err);
}

static int hold(const char *id, struct ash_err *err)
{
    return run((const char *const[]){"scontrol", "hold", id, NULL}, NULL, NULL, err);
}

static int release(const char *id, struct ash_err *err)
{
    return run((const char *const[]){"scontrol", "release", id, NULL}, NULL, NULL, err);
}

/* Of all users whose jobs accounting tells this one. --duplicates: all lines of a job that was queued again. */
static int usage(double from_s, double to_s, struct ash_usage_list *list_out, struct ash_err *err)
{
    struct ash_str text = {0};
    char from[48], to[48];
    time_t from_time = (time_t)from_s, to_time = (time_t)to_s + 1;
    struct tm when;
    const char *const argv[] = {"sacct",
                                "--allusers",
                                "--allocations",
                                "--duplicates",
                                "--noheader",
                                "--parsable2",
                                "--delimiter=" ASH_SLURM_USAGE_BREAK,
                                "--format=" ASH_SLURM_USAGE_FORMAT,
                                from,
                                to,
                                NULL};
    const struct ash_command command = {
        .argv = argv, .env = (const char *const[]){"SLURM_TIME_FORMAT=%s", NULL}, .limit_s = USAGE_LIMIT_S};
    int rc;

    strftime(from, sizeof(from), "--starttime=%Y-%m-%dT%H:%M:%S", localtime_r(&from_time, &when));
    strftime(to, sizeof(to), "--endtime=%Y-%m-%dT%H:%M:%S", localtime_r(&to_time, &when));
    rc = ash_command_output(&command, &text, err);
    if (rc == -ENOENT) rc = ash_err_prefix(err, rc, "Slurm is not installed here");
    if (rc == -EIO) rc = ash_err_prefix(err, rc, "Slurm's accounting does not answer");
    if (rc == 0) rc = ash_slurm_read_usage(text.data != NULL ? text.data : "", from_s, to_s, list_out, err);
    ash_str_fini(&text);
    return rc;
}

const struct ash_jobs_ops ash_jobs_slurm = {.name = "slurm",
                                            .is_here = is_here,
                                            .print = print,
                                            .submit = submit,
                                            .list = list,
                                            .show = show,
                                            .why = why,
                                            .stop = stop,
                                            .hold = hold,
                                            .release = release,
                                            .usage = usage};
