/* A job's requests become #SBATCH lines; below them the few commands that start its nodes and evaluate its end.
 *
 * The remaining ranks stay: --no-kill keeps the allocation when a node dies, srun's --kill-on-bad-exit=0 keeps the
 * other tasks. The notice before a time limit goes to the steps (--signal without B:), so that this script lives on and
 * requeues. */
#include "orchestrate/slurm/script.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/command.h"
#include "orchestrate/slurm/usage.h"

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

/* A word as the shell reads it back: nothing in it is expanded. */
static void put_quoted(struct writer *writer, const char *word)
{
    if (writer->rc == 0) writer->rc = ash_command_quote(writer->text, word);
}

/* sbatch splits its lines at spaces as a shell does. */
static void put_option(struct writer *writer, const char *option, const char *value)
{
    if (value == NULL) return;
    put(writer, "#SBATCH --");
    put(writer, option);
    put(writer, "=");
    put_quoted(writer, value);
    put(writer, "\n");
}

static void put_list(struct writer *writer, const char *option, const struct ash_opt_list *list)
{
    if (list->count == 0) return;
    put(writer, "#SBATCH --");
    put(writer, option);
    for (size_t i = 0; i < list->count; i++) {
        put(writer, i == 0 ? "=" : ",");
        put_quoted(writer, list->items[i]);
    }
    put(writer, "\n");
}

/* The file of the output. sbatch replaces %x in names, and %% with one %. */
static void put_output(struct writer *writer, const char *out)
{
    struct ash_str name = {0};
    int rc = 0;

    for (; *out != '\0' && rc == 0; out++)
        rc = *out == '%' ? ash_str_adds(&name, "%%") : ash_str_add(&name, out, 1);
    if (rc == 0) rc = ash_str_adds(&name, "/slurm-%j.out");
    if (rc < 0)
        writer->rc = rc;
    else
        put_option(writer, "output", name.data);
    ash_str_fini(&name);
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

/* Slurm has one setting for the network: the maximum of switches. Required means one. A preference waits for a while,
 * and then takes any. */
static void put_topology(struct writer *writer, const struct ash_spec_topology *topology, int64_t nodes)
{
    int64_t leaves = topology->group > 0 ? nodes / topology->group : 1;

    if (topology->required != NULL)
        put(writer, "#SBATCH --switches=1\n");
    else if (topology->preferred != NULL && writer->rc == 0)
        writer->rc = ash_str_addf(writer->text, "#SBATCH --switches=%lld@10:00\n", (long long)leaves);
}

/* Folder and price, for accounting (ashlar jobs usage). */
static void put_comment(struct writer *writer, const struct ash_submission *submission)
{
    struct ash_str text = {0};
    int rc = ash_str_adds(&text, ASH_SLURM_COMMENT);

    if (rc == 0 && submission->spec->price > 0.0) rc = ash_str_addf(&text, "price=%.6g ", submission->spec->price);
    if (rc == 0 && submission->spec->elastic.max > 0)
        rc = ash_str_addf(&text, "elastic=%lld-%lld ", (long long)submission->spec->elastic.min,
                          (long long)submission->spec->elastic.max);
    if (rc == 0) rc = ash_str_addf(&text, "out=%s", submission->out);
    if (rc < 0)
        writer->rc = rc;
    else
        put_option(writer, "comment", text.data);
    ash_str_fini(&text);
}

static void put_survival(struct writer *writer, const struct ash_submission *submission)
{
    put(writer, "#SBATCH --no-kill\n#SBATCH --requeue\n#SBATCH --open-mode=append\n");
    if (writer->rc == 0)
        writer->rc =
            ash_str_addf(writer->text, "#SBATCH --signal=TERM@%lld\n", (long long)ceil(submission->spec->notice_s));
    put_output(writer, submission->out);
    put_comment(writer, submission);
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
        put_quoted(writer, env->items[i] + name);
        put(writer, "\n");
    }
}

/* `look`: a node's health check before the start, and after a failure. */
static void put_look(struct writer *writer, const struct ash_submission *submission)
{
    const struct ash_spec *spec = submission->spec;

    put(writer, "look=(");
    if (spec->check == ASH_SPEC_CHECK_NONE) put(writer, "true");
    if (spec->check != ASH_SPEC_CHECK_NONE) {
        put_quoted(writer, submission->program);
        put(writer, spec->check == ASH_SPEC_CHECK_QUICK ? " check node --quick" : " check node --deep");
        if (spec->gpus > 0 && writer->rc == 0)
            writer->rc = ash_str_addf(writer->text, " --gpus %lld", (long long)spec->gpus);
    }
    put(writer, ")\nout=");
    put_quoted(writer, submission->out);
    put(writer, "\n[ -z \"${SLURM_ARRAY_TASK_ID:-}\" ] || out=$out/task-$SLURM_ARRAY_TASK_ID\nexclude=");
    for (size_t i = 0; i < spec->exclude.count; i++) {
        put_quoted(writer, spec->exclude.items[i]);
        put(writer, ",");
    }
    put(writer, "\n");
}

/* Shell functions. A requeue ends the script, so it ignores SIGTERM until the nodes are excluded; the job cannot start
 * before the script has ended, so the exclusion is never too late. Each line of the list is one start. */
static const char functions[] =
    "claim() { # the folder: of two jobs that run, one has it\n"
    "    local file=$out/.ashlar-job try other\n"
    "    mkdir -p \"$out\" && echo \"$SLURM_JOB_ID\" > \"$file.$SLURM_JOB_ID\" || exit 1\n"
    "    for try in 1 2 3; do\n"
    "        ! ln \"$file.$SLURM_JOB_ID\" \"$file\" 2> /dev/null || break\n"
    "        other=$(cat \"$file\" 2> /dev/null)\n"
    "        [ \"$other\" != \"$SLURM_JOB_ID\" ] || break\n"
    "        if [ -n \"$(squeue --noheader --jobs=\"$other\" --states=running --format=%i 2> /dev/null)\" ]; then\n"
    "            echo \"ashlar: error: job $other runs in $out: stop it, or give job.out another folder\"\n"
    "            rm -f \"$file.$SLURM_JOB_ID\"\n"
    "            exit 2\n"
    "        fi\n"
    "        rm -f \"$file\"\n"
    "    done\n"
    "    rm -f \"$file.$SLURM_JOB_ID\"\n"
    "    [ \"$(cat \"$file\")\" = \"$SLURM_JOB_ID\" ] || exit 2\n"
    "    trap 'rm -f \"$out/.ashlar-job\"' EXIT\n"
    "}\n"
    "again() { # queued again; a job that was stopped must not be, and is cancelled\n"
    "    if scontrol requeue \"$SLURM_JOB_ID\" 2> /dev/null; then\n"
    "        [ -z \"${all_nodes:-}\" ] || scontrol update JobId=\"$SLURM_JOB_ID\" NumNodes=\"$all_nodes\"\n"
    "        return\n"
    "    fi\n"
    "    ! scontrol show job \"$SLURM_JOB_ID\" | grep -q Requeue=0 || scancel \"$SLURM_JOB_ID\"\n"
    "}\n"
    "model() { stat -c '%i %z' \"$out/model\" 2> /dev/null; }\n"
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
    "    again\n"
    "    scontrol update JobId=\"$SLURM_JOB_ID\" ExcNodeList=\"$exclude$(paste -sd , \"$out/unfit-$SLURM_JOB_ID\")\"\n"
    "    exit \"$1\"\n"
    "}\n";

/* Where the ranks meet: the first node, by the address that Slurm itself uses for it. */
static const char meeting[] =
    "first=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
    "master=${MASTER_ADDR:-$(scontrol show node \"$first\" | tr ' ' '\\n' | sed -n 's/^NodeAddr=//p')}\n";

/* A node's shell, which has its number; $0 is the folder of the run. The script and srun run on the first node: when
 * that one is lost, Slurm leaves the job as it is (--no-kill), and no process would end it or queue it again. So the
 * next few nodes look for the first one when they are through, and write their output to separate files. If its slurmd
 * is gone, and Slurm reports that too, the job is queued again: finished work ends at once then, the rest resumes
 * elsewhere. Slurm notices within SlurmdTimeout. */
static const char on_node[] =
    "on_node='\n"
    "    set -- \"${@/#@node/$SLURM_NODEID}\"\n"
    "    [ \"$SLURM_NODEID\" -ge 1 ] && [ \"$SLURM_NODEID\" -le 3 ] || exec \"$@\"\n"
    "    trap : TERM # it is for the supervisor\n"
    "    \"$@\" > >(trap \"\" TERM; exec tee -ia \"$0/slurm-$SLURM_JOB_ID-node-$SLURM_NODEID.out\") 2>&1\n"
    "    code=$?\n"
    "    first=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
    "    facts=$(scontrol show node \"$first\" | tr \" \" \"\\n\"; scontrol show config | tr -d \" \")\n"
    "    port=$(sed -n \"s/^\\(Slurmd\\)*Port=//p\" <<< \"$facts\" | head -n 1)\n"
    "    at=/dev/tcp/$(sed -n \"s/^NodeAddr=//p\" <<< \"$facts\")/$port\n"
    "    limit=$((SECONDS + 60 + $(sed -n \"s/^SlurmdTimeout=\\([0-9]*\\).*/\\1/p\" <<< \"$facts\")))\n"
    "    while ((SECONDS < limit)); do\n"
    "        ! timeout 5 bash -c \"exec 3<> $at\" 2> /dev/null || break\n"
    "        case $(sinfo --noheader --nodes=\"$first\" --format=%t) in down* | *\\*)\n"
    "            scontrol requeue \"$SLURM_JOB_ID\" && break\n"
    "            ! scontrol show job \"$SLURM_JOB_ID\" | grep -q Requeue=0 || scancel \"$SLURM_JOB_ID\" ;;\n"
    "        esac\n"
    "        sleep 2\n"
    "    done\n"
    "    exit $code'\n";

/* Words of the node's supervisor. The folder and the address are the script's own; all else means itself. */
static void put_words(struct writer *writer, const struct ash_submission *submission,
                      const struct ash_submission_place *place, const struct ash_submission_words *words)
{
    bool is_elastic = submission->spec->elastic.max > 0;

    put(writer, is_elastic ? "    \"${each[@]}\" bash -c \"$stays\" \"$out\" bash -c \"$on_node\" \"$out\" \\\n       "
                           : "    \"${each[@]}\" bash -c \"$on_node\" \"$out\" \\\n       ");
    for (size_t i = 0; i < words->count; i++) {
        const char *word = words->items[i];

        put(writer, " ");
        if (is_elastic && i > 0 && strcmp(words->items[i - 1], "--procs") == 0) {
            put(writer, "\"$procs\"");
            continue;
        }
        if (is_elastic && i > 0 && strcmp(words->items[i - 1], "--nodes") == 0) {
            put(writer, "\"$nodes\"");
            continue;
        }
        if (word == submission->out)
            put(writer, "\"$out\"");
        else if (word == place->master)
            put(writer, "\"$master:$port\"");
        else
            put_quoted(writer, word);
    }
    put(writer, "\n");
}

/* A node of an elastic job: told by SIGUSR1 to leave it does so between two steps, and that is no failure. Its number
 * is the script's, or of nodes that join one of the last. */
static const char stays[] =
    "stays='\n"
    "    set -m\n"
    "    file=$0/.ashlar-node-$SLURM_JOB_ID-$SLURMD_NODENAME left=\n"
    "    [ -z \"${ASHLAR_JOINS:-}\" ] || set -- \"${@/#@node/$((ASHLAR_NODES - 1 - SLURM_NODEID))}\"\n"
    "    trap : TERM # it is for the supervisor\n"
    "    \"$@\" < /dev/null &\n"
    "    child=$!\n"
    "    set +m\n"
    "    trap \"left=1; kill -TERM -- -$child\" USR1\n"
    "    echo $$ > \"$file\"\n"
    "    while wait $child; code=$?; kill -0 $child 2> /dev/null; do :; done\n"
    "    rm -f \"$file\"\n"
    "    [ -z \"$left\" ] || exit 0\n"
    "    exit $code'\n";

/* As many ranks as there are nodes now. `again` asks for all nodes. Nodes that join a job that runs do nothing else. */
static void put_elastic(struct writer *writer, const struct ash_submission *submission,
                        const struct ash_submission_place *place, const struct ash_submission_words *words)
{
    const struct ash_spec *spec = submission->spec;

    put(writer, stays);
    if (writer->rc == 0)
        writer->rc = ash_str_addf(writer->text,
                                  "all_nodes=%lld nodes=${ASHLAR_NODES:-$SLURM_JOB_NUM_NODES}\n"
                                  "procs=$((nodes * %lld))\n"
                                  "if [ -n \"${ASHLAR_JOINS:-}\" ]; then # nodes that ashlar jobs balance adds\n"
                                  "    export ASHLAR_JOINS ASHLAR_NODES\n"
                                  "    of=$(squeue --noheader --states=running --jobs=\"$ASHLAR_JOINS\" --format=%%N)\n"
                                  "    [ -n \"$of\" ] || exit 0 # it has ended meanwhile\n"
                                  "    first=$(scontrol show hostnames \"$of\" | head -n 1)\n"
                                  "    master=${MASTER_ADDR:-$(scontrol show node \"$first\" | tr ' ' '\\n' | sed -n "
                                  "'s/^NodeAddr=//p')}\n"
                                  "    port=$((%d + ASHLAR_JOINS %% %d))\n",
                                  (long long)spec->nodes, (long long)spec->procs, PORT_FIRST, PORT_COUNT);
    put_words(writer, submission, place, words);
    put(writer, "    code=$?\n"
                "    case $code in 75 | 143) exit 0 ;; esac # it has left\n"
                "    exit $code\n"
                "fi\n");
}

/* What failed is started again in place, or without the nodes that are lost. The supervisor of a single node has
 * started its processes often enough when it fails. */
static void put_retry(struct writer *writer, const struct ash_spec *spec)
{
    bool is_one = ash_spec_all_nodes(spec) == 1;

    if (writer->rc == 0)
        writer->rc = ash_str_addf(writer->text, "    [ $((%s + ${SLURM_RESTART_COUNT:-0})) -le %lld ] || exit $code\n",
                                  is_one ? "1" : "start", (long long)spec->restarts);
    put(writer, "    bad=$(unfit)\n"
                "    [ -z \"$bad\" ] || elsewhere $code \"$bad\"\n");
    put(writer, is_one ? "    exit $code\n"
                       : "    ((SECONDS - began < 60)) || wait_s=1\n"
                         "    echo \"ashlar: the job failed with exit code $code and is started again in $wait_s s\"\n"
                         "    sleep $wait_s\n"
                         "    wait_s=$((wait_s < 30 ? 2 * wait_s : 60))\n");
}

/* Lost nodes make srun fail, not the job: it is done when this start has written its model. A job that was saved and
 * stopped continues when there is time again. */
static void put_starts(struct writer *writer, const struct ash_submission *submission,
                       const struct ash_submission_place *place, const struct ash_submission_words *words)
{
    put(writer, "claim\n");
    if (submission->spec->check != ASH_SPEC_CHECK_NONE)
        put(writer, "bad=$(unfit)\n[ -z \"$bad\" ] || elsewhere 78 \"$bad\"\n");
    put(writer, "wait_s=1\n"
                "for ((start = 1; ; start++)); do\n"
                "    rm -f \"$out/" ASH_SUBMISSION_MEMBERS "/contacts\" # of an earlier start\n"
                "    before=$(model) began=$SECONDS\n");
    put_words(writer, submission, place, words);
    put(writer, "    code=$?\n"
                "    case $code in\n"
                "        0 | 2 | 130) exit $code ;;\n"
                "        75 | 143) again; exit $code ;; # saved and stopped, or not in time\n"
                "    esac\n"
                "    [ \"$before\" = \"$(model)\" ] || exit 0 # nodes were lost, the job was not\n");
    put_retry(writer, submission->spec);
    put(writer, "done\n");
}

/* A line of the script holds each of these: it cannot hold the end of a line. */
static int check_lines(const struct ash_submission *submission, struct ash_err *err)
{
    const struct ash_spec *spec = submission->spec;
    const struct {
        const char *setting, *value;
    } values[] = {{"job.out", submission->out},
                  {"job.memory", spec->memory},
                  {"job.queue", spec->queue},
                  {"job.class", spec->priority},
                  {"job.account", spec->account}};
    const struct {
        const char *setting;
        const struct ash_opt_list *list;
    } lists[] = {{"job.exclude", &spec->exclude}, {"job.slurm", &spec->slurm}};

    for (size_t i = 0; i < ASH_COUNT(values); i++)
        if (values[i].value != NULL && strpbrk(values[i].value, "\n\r") != NULL)
            return ash_err_set(err, -EINVAL, "%s has a line break in it: Slurm cannot be told that", values[i].setting);
    for (size_t i = 0; i < ASH_COUNT(lists); i++)
        for (size_t j = 0; j < lists[i].list->count; j++)
            if (strpbrk(lists[i].list->items[j], "\n\r") != NULL)
                return ash_err_set(err, -EINVAL, "%s has a line break in it: Slurm cannot be told that",
                                   lists[i].setting);
    return 0;
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
    struct ash_submission_place place = {.node_rank = "@node", .master = "@master", .is_looked_at = true};
    struct ash_submission_words words;
    struct writer writer = {.text = script_out};
    int rc = check_topology(&spec->topology, err);

    if (rc == 0) rc = check_lines(submission, err);
    if (rc == 0) rc = ash_submission_list_words(submission, &place, &words, err);
    if (rc < 0) return rc;
    put(&writer, "#!/bin/bash\n");
    put_option(&writer, "job-name", spec->name);
    put_resources(&writer, spec);
    put_topology(&writer, &spec->topology, spec->nodes);
    put_survival(&writer, submission);
    put(&writer, "\n" ASH_SLURM_MARK "\n");
    put_environment(&writer, &spec->env);
    put(&writer, meeting);
    if (writer.rc == 0)
        writer.rc = ash_str_addf(script_out, "port=$((%d + SLURM_JOB_ID %% %d))\n", PORT_FIRST, PORT_COUNT);
    put_look(&writer, submission);
    put(&writer, functions);
    put(&writer, on_node);
    if (spec->elastic.max > 0) put_elastic(&writer, submission, &place, &words);
    put_starts(&writer, submission, &place, &words);
    if (writer.rc < 0) return ash_err_set(err, writer.rc, "out of memory for the batch script");
    return 0;
}
