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

/* A word of a command line: texts with variables of the script stay open to the shell. */
static void put_word(struct writer *writer, const char *word)
{
    put(writer, " ");
    if (writer->rc == 0)
        writer->rc = strchr(word, '$') != NULL ? ash_str_addf(writer->text, "\"%s\"", word)
                                               : ash_command_quote(writer->text, word);
}

/* `look`: what a node is asked before the start, and after a failure. */
static void put_look(struct writer *writer, const struct ash_submission *submission)
{
    const struct ash_spec *spec = submission->spec;

    put(writer, "look=(");
    if (spec->check == ASH_SPEC_CHECK_NONE) put(writer, "true");
    if (spec->check != ASH_SPEC_CHECK_NONE) {
        put_word(writer, submission->program);
        put(writer, spec->check == ASH_SPEC_CHECK_QUICK ? " check node --quick" : " check node --deep");
        if (spec->gpus > 0 && writer->rc == 0)
            writer->rc = ash_str_addf(writer->text, " --gpus %lld", (long long)spec->gpus);
    }
    put(writer, ")\nout=");
    if (writer->rc == 0) writer->rc = ash_command_quote(writer->text, submission->out);
    put(writer, "\nexclude=");
    for (size_t i = 0; i < spec->exclude.count; i++) {
        if (writer->rc == 0) writer->rc = ash_command_quote(writer->text, spec->exclude.items[i]);
        put(writer, ",");
    }
    put(writer, "\n");
}

/* Shell functions. A requeue ends the script, so it ignores SIGTERM until the nodes are excluded; the job cannot start
 * before the script has ended, so the exclusion is never too late. Each line of the list is one start. */
static const char functions[] =
    "each=(srun --overlap --no-kill --kill-on-bad-exit=0 --wait=0 --ntasks-per-node=1)\n"
    "unfit() { # nodes that do not answer or are not fit, a line each with the reason\n"
    "    local -A answers=()\n"
    "    local node answer\n"
    "    while read -r node answer; do answers[$node]=$answer; done < <(timeout 330 \"${each[@]}\" bash -c '\n"
    "        said=$(\"$@\" 2>&1) && echo \"$SLURMD_NODENAME fit\" && exit\n"
    "        grep -qm 1 \"^BAD\" <<< \"$said\" && said=$(grep \"^BAD\" <<< \"$said\")\n"
    "        echo \"$SLURMD_NODENAME is not fit: \"$said' bash \"${look[@]}\" 2> /dev/null)\n"
    "    for node in $(scontrol show hostnames \"$SLURM_JOB_NODELIST\"); do\n"
    "        [ \"${answers[$node]:-}\" = fit ] || echo \"$node ${answers[$node]:-does not answer}\"\n"
    "    done\n"
    "}\n"
    "elsewhere() { # exit code, what unfit said: the job starts again without those nodes\n"
    "    sed 's/^/ashlar: node /' <<< \"$2\"\n"
    "    cut -d ' ' -f 1 <<< \"$2\" | paste -sd , >> \"$out/unfit-$SLURM_JOB_ID\"\n"
    "    if [ \"$(wc -l < \"$out/unfit-$SLURM_JOB_ID\")\" -ge 3 ]; then\n"
    "        echo 'ashlar: error: three starts, and each had a node that is not fit: it is the job, not the nodes'\n"
    "        exit \"$1\"\n"
    "    fi\n"
    "    trap '' TERM\n"
    "    scontrol requeue \"$SLURM_JOB_ID\"\n"
    "    scontrol update JobId=\"$SLURM_JOB_ID\" ExcNodeList=\"$exclude$(paste -sd , \"$out/unfit-$SLURM_JOB_ID\")\"\n"
    "    exit \"$1\"\n"
    "}\n";

/* A node's shell, which knows its number. The script and srun run on the first node: when that one is lost, Slurm
 * leaves the job as it is (--no-kill), and nobody would end it or queue it again. So the next few nodes look for the
 * first one when they are through. Where its slurmd is gone, and Slurm says so too, the job is queued again: what
 * is done already ends at once then, the rest resumes elsewhere. Slurm notices within SlurmdTimeout. */
static const char on_node[] =
    "on_node='\n"
    "    set -- \"${@/#@node/$SLURM_NODEID}\"\n"
    "    [ \"$SLURM_NODEID\" -ge 1 ] && [ \"$SLURM_NODEID\" -le 3 ] || exec \"$@\"\n"
    "    trap : TERM # it is for the supervisor\n"
    "    \"$@\"\n"
    "    code=$?\n"
    "    first=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
    "    facts=$(scontrol show node \"$first\" | tr \" \" \"\\n\"; scontrol show config | tr -d \" \")\n"
    "    port=$(sed -n \"s/^\\(Slurmd\\)*Port=//p\" <<< \"$facts\" | head -n 1)\n"
    "    at=/dev/tcp/$(sed -n \"s/^NodeAddr=//p\" <<< \"$facts\")/$port\n"
    "    limit=$((SECONDS + 60 + $(sed -n \"s/^SlurmdTimeout=\\([0-9]*\\).*/\\1/p\" <<< \"$facts\")))\n"
    "    while ((SECONDS < limit)); do\n"
    "        ! timeout 5 bash -c \"exec 3<> $at\" 2> /dev/null || break\n"
    "        case $(sinfo --noheader --nodes=\"$first\" --format=%t) in down* | *\\*)\n"
    "            scontrol requeue \"$SLURM_JOB_ID\" && break ;;\n"
    "        esac\n"
    "        sleep 2\n"
    "    done\n"
    "    exit $code'\n";

/* Words of the node's supervisor. */
static void put_words(struct writer *writer, const struct ash_submission_words *words)
{
    put(writer, "    \"${each[@]}\" bash -c \"$on_node\" bash \\\n       ");
    for (size_t i = 0; i < words->count; i++)
        put_word(writer, words->items[i]);
    put(writer, "\n");
}

/* Lost nodes make srun fail, not the job: it is done when its model is there. What was saved and stopped continues when
 * there is time again. What failed is started again where it is, or without the nodes that are lost. */
static void put_starts(struct writer *writer, const struct ash_submission *submission,
                       const struct ash_submission_words *words)
{
    if (submission->spec->check != ASH_SPEC_CHECK_NONE)
        put(writer, "bad=$(unfit)\n[ -z \"$bad\" ] || elsewhere 78 \"$bad\"\n");
    put(writer, "for ((start = 1; ; start++)); do\n"
                "    rm -rf \"$out/" ASH_SUBMISSION_MEMBERS "\" # nobody of an earlier start is left\n");
    put_words(writer, words);
    put(writer, "    code=$?\n"
                "    [ $code -eq 0 ] || [ ! -e \"$out/model\" ] || code=0 # nodes were lost, the job was not\n"
                "    [ $code -ne 75 ] || scontrol requeue \"$SLURM_JOB_ID\" # saved and stopped\n"
                "    case $code in 0 | 2 | 75 | 130) exit $code ;; esac\n");
    if (writer->rc == 0)
        writer->rc =
            ash_str_addf(writer->text, "    [ $((start + ${SLURM_RESTART_COUNT:-0})) -le %lld ] || exit $code\n",
                         (long long)submission->spec->restarts);
    put(writer, "    bad=$(unfit)\n"
                "    [ -z \"$bad\" ] || elsewhere $code \"$bad\"\n"
                "    echo \"ashlar: the job failed with exit code $code and is started again\"\n"
                "done\n");
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
    struct ash_submission_place place = {.node_rank = "@node", .master = "$master:$port", .is_looked_at = true};
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
    put_look(&writer, submission);
    put(&writer, functions);
    put(&writer, on_node);
    put_starts(&writer, submission, &words);
    if (writer.rc < 0) return ash_err_set(err, writer.rc, "out of memory for the batch script");
    return 0;
}
