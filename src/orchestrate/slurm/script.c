/* What a job asks for becomes #SBATCH lines; below them the few commands that start its nodes and judge its end.
 *
 * Survivors stay: --no-kill keeps the allocation when a node dies, srun's --kill-on-bad-exit=0 keeps the other tasks.
 * The notice before a time limit goes to the steps (--signal without B:), so that this script lives on and requeues. */
#include "orchestrate/slurm/script.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/command.h"

#define PORT_FIRST 20000 /* as ranks choose for themselves under srun */
#define PORT_COUNT 10000

struct writer {
    struct ash_str *text;
    int rc; /* the first failure */
};

static void put(struct writer *writer, const char *text)
{
    if (writer->rc == 0) writer->rc = ash_str_adds(writer->text, text);
}

static void put_number(struct writer *writer, const char *option, int64_t value)
{
    if (writer->rc == 0 && value > 0)
        writer->rc = ash_str_addf(writer->text, "#SBATCH --%s=%lld\n", option, (long long)value);
}

/* sbatch splits its lines at spaces as a shell does. */
static void put_option(struct writer *writer, const char *option, const char *value)
{
    if (value == NULL) return;
    put(writer, "#SBATCH --");
    put(writer, option);
    put(writer, "=");
    if (writer->rc == 0) writer->rc = ash_command_quote(writer->text, value);
    put(writer, "\n");
}

static void put_list(struct writer *writer, const char *option, const struct ash_opt_list *list)
{
    if (list->count == 0) return;
    put(writer, "#SBATCH --");
    put(writer, option);
    for (size_t i = 0; i < list->count; i++) {
        put(writer, i == 0 ? "=" : ",");
        put(writer, list->items[i]);
    }
    put(writer, "\n");
}

static void put_resources(struct writer *writer, const struct ash_spec *spec)
{
    put_number(writer, "nodes", (int64_t)ash_spec_all_nodes(spec));
    put_number(writer, "ntasks-per-node", 1);
    put_number(writer, "gpus-per-node", spec->gpus);
    put_number(writer, "cpus-per-task", spec->cpus);
    put_option(writer, "mem", spec->memory);
    put_number(writer, "time", (int64_t)ceil(spec->time_s / 60)); /* minutes */
    put_option(writer, "partition", spec->queue);
    put_option(writer, "qos", spec->priority);
    put_option(writer, "account", spec->account);
    put_list(writer, "exclude", &spec->exclude);
}

/* Slurm knows one question about the network: how many switches at most. Required means one. A preference waits for a
 * while, and then takes what there is. */
static void put_topology(struct writer *writer, const struct ash_spec_topology *topology, int64_t nodes)
{
    int64_t leaves = topology->group > 0 ? nodes / topology->group : 1;

    if (topology->required != NULL)
        put(writer, "#SBATCH --switches=1\n");
    else if (topology->preferred != NULL && writer->rc == 0)
        writer->rc = ash_str_addf(writer->text, "#SBATCH --switches=%lld@10:00\n", (long long)leaves);
}

static void put_survival(struct writer *writer, const struct ash_submission *submission)
{
    put(writer, "#SBATCH --no-kill\n#SBATCH --requeue\n#SBATCH --open-mode=append\n");
    if (writer->rc == 0)
        writer->rc =
            ash_str_addf(writer->text, "#SBATCH --signal=TERM@%lld\n", (long long)ceil(submission->spec->notice_s));
    put(writer, "#SBATCH --output=");
    put(writer, submission->out);
    put(writer, "/slurm-%j.out\n");
    for (size_t i = 0; i < submission->spec->slurm.count; i++) {
        put(writer, "#SBATCH ");
        put(writer, submission->spec->slurm.items[i]);
        put(writer, "\n");
    }
}

static void put_environment(struct writer *writer, const struct ash_opt_list *env)
{
    for (size_t i = 0; i < env->count; i++) {
        size_t name = strcspn(env->items[i], "=") + 1;

        if (writer->rc == 0) writer->rc = ash_str_addf(writer->text, "export %.*s", (int)name, env->items[i]);
        if (writer->rc == 0) writer->rc = ash_command_quote(writer->text, env->items[i] + name);
        put(writer, "\n");
    }
}

/* Words of the node's supervisor, in a shell that knows the node's number. */
static void put_words(struct writer *writer, const struct ash_submission_words *words)
{
    put(writer, "srun --no-kill --kill-on-bad-exit=0 --wait=0 --ntasks-per-node=1 bash -c 'exec \"${@/#@node/"
                "$SLURM_NODEID}\"' bash \\\n    ");
    for (size_t i = 0; i < words->count; i++) {
        if (i > 0) put(writer, " ");
        if (writer->rc == 0)
            writer->rc = strchr(words->items[i], '$') != NULL ? ash_str_addf(writer->text, "\"%s\"", words->items[i])
                                                              : ash_command_quote(writer->text, words->items[i]);
    }
    put(writer, "\n");
}

/* Lost nodes make srun fail, not the job: it is done when its model is there. What was saved and stopped goes on when
 * there is time again. */
static void put_verdict(struct writer *writer, const struct ash_submission *submission)
{
    put(writer, "code=$?\n[ $code -eq 0 ] || [ ! -e ");
    if (writer->rc == 0) writer->rc = ash_command_quote(writer->text, submission->out);
    put(writer, "/model ] || code=0 # nodes were lost, the job was not\n"
                "[ $code -ne 75 ] || scontrol requeue \"$SLURM_JOB_ID\" # saved and stopped\n"
                "exit $code\n");
}

static int check_topology(const struct ash_spec_topology *topology, struct ash_err *err)
{
    static const char *const levels[] = {"switch", "leaf", "block", "rack"};
    const char *level = topology->required;

    if (level == NULL) return 0;
    for (size_t i = 0; i < ASH_COUNT(levels); i++)
        if (strcmp(level, levels[i]) == 0) return 0;
    return ash_err_set(err, -EINVAL,
                       "job.topology.required is '%.60s': Slurm can hold a job inside one leaf switch or block: say "
                       "switch, block or rack",
                       level);
}

int ash_slurm_script(const struct ash_submission *submission, struct ash_str *script_out, struct ash_err *err)
{
    const struct ash_spec *spec = submission->spec;
    struct ash_submission_place place = {.node_rank = "@node", .master = "$master:$port"};
    struct ash_submission_words words;
    struct writer writer = {.text = script_out};
    int rc = check_topology(&spec->topology, err);

    if (rc == 0) rc = ash_submission_list_words(submission, &place, &words, err);
    if (rc < 0) return rc;
    put(&writer, "#!/bin/bash\n");
    put_option(&writer, "job-name", spec->name);
    put_resources(&writer, spec);
    put_topology(&writer, &spec->topology, spec->nodes);
    put_survival(&writer, submission);
    put(&writer, "\n");
    put_environment(&writer, &spec->env);
    put(&writer, "master=${MASTER_ADDR:-$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)}\n");
    if (writer.rc == 0)
        writer.rc = ash_str_addf(script_out, "port=$((%d + SLURM_JOB_ID %% %d))\n", PORT_FIRST, PORT_COUNT);
    put_words(&writer, &words);
    put_verdict(&writer, submission);
    if (writer.rc < 0) return ash_err_set(err, writer.rc, "out of memory for the batch script");
    return 0;
}
