/* ashlar policy on Slurm: sacctmgr prints what there is and makes the changes. */
#include "cmd/policy_priv.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/command.h"
#include "queue/policy/slurm_state.h"

#define WORDS_MAX 32
#define LIMIT_S 60.0

static int ask(const char *const *argv, struct ash_str *text, struct ash_err *err)
{
    return ash_command_output(&(struct ash_command){.argv = argv, .limit_s = LIMIT_S}, text, err);
}

/* GPUs are counted once slurm.conf says so: before that Slurm takes no limit on them. */
static int check_tres(const json_t *changes, struct ash_err *err)
{
    const char *const argv[] = {"sacctmgr", "--noheader", "--parsable2", "show", "tres", "format=Type,Name", NULL};
    struct ash_str text = {0};
    const json_t *words, *word;
    size_t i, k;
    bool wants_gpus = false, has_gpus;
    int rc;

    json_array_foreach(changes, i, words)
        json_array_foreach(words, k, word)
            wants_gpus = wants_gpus || strstr(json_string_value(word), "gres/gpu=") != NULL;
    if (!wants_gpus) return 0;
    rc = ask(argv, &text, err);
    has_gpus = rc == 0 && text.data != NULL && strstr(text.data, "gres|gpu") != NULL;
    ash_str_fini(&text);
    if (rc < 0 || has_gpus) return rc;
    return ash_err_set(err, -EINVAL,
                       "Slurm's accounting counts no GPUs: put AccountingStorageTRES=gres/gpu and GresTypes=gpu into "
                       "slurm.conf, restart slurmctld, then apply");
}

static int read_live(json_t **live_out, struct ash_err *err)
{
    const char *const qos_argv[] = {"sacctmgr", "--noheader", "--parsable2", "show", "qos", ASH_SACCTMGR_QOS_FORMAT,
                                    NULL};
    const char *const accounts_argv[] = {
        "sacctmgr", "--noheader", "--parsable2", "show", "associations", "where", "user=", ASH_SACCTMGR_ACCOUNTS_FORMAT,
        NULL};
    struct ash_str qos = {0}, accounts = {0};
    int rc = ask(qos_argv, &qos, err);

    if (rc == 0) rc = ask(accounts_argv, &accounts, err);
    if (rc == 0)
        rc = ash_slurm_state_read(qos.data != NULL ? qos.data : "", accounts.data != NULL ? accounts.data : "",
                                  live_out, err);
    ash_str_fini(&qos);
    ash_str_fini(&accounts);
    return rc;
}

static int compare(const struct ash_policy_conf *conf, json_t **changes_out, struct ash_err *err)
{
    json_t *wanted = NULL, *live = NULL, *changes = NULL;
    int rc = ash_slurm_state_of(conf, &wanted, err);

    if (rc == 0) rc = read_live(&live, err);
    if (rc == 0) {
        changes = ash_slurm_state_changes(wanted, live);
        rc = changes == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : check_tres(changes, err);
    }
    json_decref(wanted);
    json_decref(live);
    if (rc < 0)
        json_decref(changes);
    else
        *changes_out = changes;
    return rc;
}

static int describe(const json_t *change, struct ash_str *text)
{
    const json_t *word;
    size_t i;
    int rc = ash_str_adds(text, "sacctmgr -i");

    json_array_foreach(change, i, word) {
        if (rc == 0) rc = ash_str_adds(text, " ");
        if (rc == 0) rc = ash_command_quote(text, json_string_value(word));
    }
    return rc == 0 ? ash_str_adds(text, "\n") : rc;
}

static int show(const struct ash_policy_conf *conf, struct ash_str *text, struct ash_err *err)
{
    json_t *wanted = NULL, *commands, *words;
    size_t i;
    int rc = ash_slurm_state_of(conf, &wanted, err);

    if (rc < 0) return rc;
    commands = ash_slurm_state_changes(wanted, NULL);
    json_array_foreach(commands, i, words)
        if (rc == 0) rc = describe(words, text);
    json_decref(commands);
    json_decref(wanted);
    return rc < 0 ? ash_err_set(err, rc, "out of memory") : 0;
}

static int run(const json_t *change, struct ash_err *err)
{
    const char *argv[WORDS_MAX + 3] = {"sacctmgr", "-i"};
    const json_t *word;
    size_t i;

    ash_assert(json_array_size(change) <= WORDS_MAX);
    json_array_foreach(change, i, word)
        argv[2 + i] = json_string_value(word);
    return ask(argv, NULL, err);
}

const struct ash_policy_site_ops ash_policy_slurm_site = {show, compare, describe, run};
