/* slurm_state: QOS from classes and from caps of users, accounts from queues. */
#include "queue/policy/slurm_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "queue/policy/export_priv.h"

#define FIELDS_MAX 16
#define LINE_BYTES 8192
#define TEXT_BYTES 64

static const char *const kinds[] = {"qos", "account"};

/* ---- of a policy ------------------------------------------------------------------------------------------------- */

/* "gres/gpu=8", or nothing. */
static const char *gpus_text(int64_t milli, char buf[TEXT_BYTES])
{
    buf[0] = '\0';
    if (milli != ASH_POLICY_UNLIMITED) snprintf(buf, TEXT_BYTES, "gres/gpu=%.0f", ash_export_gpus(milli));
    return buf;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names joined by commas, in order: Slurm's has none. */
static json_t *joined(const char **names, size_t count)
{
    char text[LINE_BYTES] = "";
    size_t length = 0;

    if (count > 0) qsort(names, count, sizeof(*names), compare_names);
    for (size_t i = 0; i < count && length < sizeof(text); i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s", i > 0 ? "," : "", names[i]);
    return json_string(text);
}

/* Names of the classes that this one stops. */
static json_t *preempted(const struct ash_policy_conf *conf, const struct ash_policy_class *class)
{
    char buf[ASH_POLICY_CLASSES_MAX][ASH_POLICY_NAME_BYTES];
    const char *names[ASH_POLICY_CLASSES_MAX] = {NULL};
    size_t count = 0;

    for (int k = 0; k < conf->class_count && class->may_preempt; k++)
        if (conf->classes[k].is_preemptible && conf->classes[k].priority < class->priority) {
            names[count] = ash_export_name(conf->classes[k].name, buf[count]);
            count++;
        }
    return joined(names, count);
}

static json_t *priority_text(double priority)
{
    char text[TEXT_BYTES];

    snprintf(text, sizeof(text), "%.0f", priority);
    return json_string(text);
}

static json_t *qos_fields(json_t *priority, json_t *preempt, const char *per_user)
{
    return json_pack("{so ss so ss}", "Priority", priority, "Flags", "DenyOnLimit", "Preempt", preempt,
                     "MaxTRESPerUser", per_user);
}

/* Lower classes first: a QOS must be there before another one names it. */
static void add_classes(const struct ash_policy_conf *conf, json_t *qos)
{
    const struct ash_policy_class *order[ASH_POLICY_CLASSES_MAX];
    char name[ASH_POLICY_NAME_BYTES];

    for (int i = 0; i < conf->class_count; i++) {
        int at = i;

        for (; at > 0 && order[at - 1]->priority > conf->classes[i].priority; at--)
            order[at] = order[at - 1];
        order[at] = &conf->classes[i];
    }
    for (int i = 0; i < conf->class_count; i++)
        json_object_set_new(qos, ash_export_name(order[i]->name, name),
                            qos_fields(priority_text(order[i]->priority), preempted(conf, order[i]), ""));
}

/* The most that its jobs may have together: its cap, or its quota with all that it may borrow. */
static int64_t cap_of(const struct ash_policy_queue *queue)
{
    int64_t most;

    if (!queue->has_quota || queue->borrow[ASH_POLICY_GPU] == ASH_POLICY_UNLIMITED) return queue->gpus_max;
    most = queue->nominal[ASH_POLICY_GPU] + queue->borrow[ASH_POLICY_GPU];
    return most < queue->gpus_max ? most : queue->gpus_max;
}

static void add_account(const struct ash_policy_conf *conf, const struct ash_policy_queue *queue, json_t *state)
{
    char name[ASH_POLICY_NAME_BYTES], parent[ASH_POLICY_NAME_BYTES], users[ASH_POLICY_NAME_BYTES + 8];
    char shares[TEXT_BYTES], group[TEXT_BYTES], job[TEXT_BYTES], user[TEXT_BYTES];
    json_t *account;

    snprintf(shares, sizeof(shares), "%.0f", queue->shares >= 1 ? queue->shares : 1.0);
    account = json_pack("{ss ss ss ss}", "parent",
                        queue->parent >= 0 ? ash_export_name(conf->queues[queue->parent].name, parent) : "root",
                        "fairshare", shares, "GrpTRES", gpus_text(cap_of(queue), group), "MaxTRESPerJob",
                        gpus_text(queue->job_gpus_max, job));
    ash_export_name(queue->name, name);
    if (queue->user_gpus_max != ASH_POLICY_UNLIMITED) {
        snprintf(users, sizeof(users), "%s-users", name);
        json_object_set_new(json_object_get(state, "qos"), users,
                            qos_fields(json_string("0"), json_string(""), gpus_text(queue->user_gpus_max, user)));
        json_object_set_new(account, "defaultqos", json_string(users));
    }
    json_object_set_new(json_object_get(state, "account"), name, account);
}

int ash_slurm_state_of(const struct ash_policy_conf *conf, json_t **state_out, struct ash_err *err)
{
    json_t *state = json_pack("{s{} s{}}", "qos", "account");
    size_t users = 0;

    if (state == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a policy's accounts");
    add_classes(conf, json_object_get(state, "qos"));
    for (int i = 0; i < conf->queue_count; i++) {
        add_account(conf, &conf->queues[i], state);
        users += conf->queues[i].user_gpus_max != ASH_POLICY_UNLIMITED;
    }
    if (json_object_size(json_object_get(state, "qos")) == (size_t)conf->class_count + users &&
        json_object_size(json_object_get(state, "account")) == (size_t)conf->queue_count) {
        *state_out = state;
        return 0;
    }
    json_decref(state);
    return ash_err_set(err, -EINVAL,
                       "two classes or two queues of %.60s have one name in Slurm, which has small letters, digits "
                       "and '-'",
                       conf->name);
}

/* ---- of sacctmgr's lines ----------------------------------------------------------------------------------------- */

/* Cut a line at its bars, in place. Returns how many fields there are. */
static size_t split(char *line, const char *fields[FIELDS_MAX])
{
    size_t count = 0;

    for (char *next = line; next != NULL && count < FIELDS_MAX; count++)
        fields[count] = strsep(&next, "|");
    return count;
}

static json_t *sorted_list(const char *text)
{
    char copy[LINE_BYTES], *next = copy;
    const char *names[LINE_BYTES / 2];
    size_t count = 0;

    snprintf(copy, sizeof(copy), "%s", text);
    while (next != NULL) {
        char *name = strsep(&next, ",");

        if (name[0] != '\0') names[count++] = name;
    }
    return joined(names, count);
}

static int read_qos(const char **f, json_t *state, struct ash_err *err)
{
    (void)err;
    return json_object_set_new(json_object_get(state, "qos"), f[0],
                               json_pack("{ss ss so ss}", "Priority", f[1], "Flags", f[3], "Preempt", sorted_list(f[2]),
                                         "MaxTRESPerUser", f[4])) < 0
               ? -EINVAL
               : 0;
}

static int read_account(const char **f, json_t *state, struct ash_err *err)
{
    const char *cluster = json_string_value(json_object_get(state, "cluster"));

    if (f[2][0] != '\0') return 0; /* a user's */
    if (cluster != NULL && strcmp(cluster, f[0]) != 0)
        return ash_err_set(err, -EINVAL, "accounts are of the clusters %.60s and %.60s: one at a time", cluster, f[0]);
    json_object_set_new(state, "cluster", json_string(f[0]));
    return json_object_set_new(json_object_get(state, "account"), f[1],
                               json_pack("{ss ss ss ss ss}", "parent", f[3], "fairshare", f[4], "GrpTRES", f[5],
                                         "MaxTRESPerJob", f[6], "defaultqos", f[8])) < 0
               ? -EINVAL
               : 0;
}

/* The fields of a line into the state. */
typedef int (*read_fn)(const char **f, json_t *state, struct ash_err *err);

/* Each line of a text, which has that many fields. */
static int read_lines(const char *text, size_t wanted, read_fn read, json_t *state, struct ash_err *err)
{
    char line[LINE_BYTES];
    const char *fields[FIELDS_MAX];
    int rc = 0;

    for (; *text != '\0' && rc == 0; text += strcspn(text, "\n"), text += *text == '\n') {
        size_t length = strcspn(text, "\n");

        if (length == 0) continue;
        if (length >= sizeof(line))
            return ash_err_set(err, -EINVAL, "sacctmgr has printed a line of %zu bytes", length);
        memcpy(line, text, length);
        line[length] = '\0';
        if (split(line, fields) != wanted || fields[0][0] == '\0')
            return ash_err_set(err, -EINVAL, "sacctmgr has printed '%.*s', which is not %zu fields",
                               (int)(length % 100), text, wanted);
        rc = read(fields, state, err);
        if (rc < 0 && (err == NULL || err->code == 0))
            ash_err_set(err, rc, "sacctmgr has printed a name that is no text");
    }
    return rc;
}

int ash_slurm_state_read(const char *qos, const char *accounts, json_t **state_out, struct ash_err *err)
{
    json_t *state = json_pack("{s{} s{}}", "qos", "account");
    int rc = state != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for accounts");

    if (rc == 0) rc = read_lines(qos, 5, read_qos, state, err);
    if (rc == 0) rc = read_lines(accounts, 9, read_account, state, err);
    if (rc < 0) {
        json_decref(state);
        return rc;
    }
    json_object_del(state, "cluster");
    *state_out = state;
    return 0;
}

/* ---- from one to the other --------------------------------------------------------------------------------------- */

static void add_word(json_t *words, const char *key, const char *value)
{
    char text[LINE_BYTES];

    snprintf(text, sizeof(text), "%s=%s", key, value);
    json_array_append_new(words, json_string(text));
}

/* A limit is removed by -1, a list by nothing. */
static const char *cleared(const char *field)
{
    return strstr(field, "TRES") != NULL ? "gres/gpu=-1" : "";
}

/* Its fields that are not as in live; of a new one those that say something. */
static size_t add_fields(json_t *words, json_t *wanted, const json_t *live)
{
    const char *key;
    json_t *value;
    size_t count = 0;

    json_object_foreach(wanted, key, value) {
        const char *text = json_string_value(value), *now = json_string_value(json_object_get(live, key));

        if (live == NULL ? text[0] == '\0' : now != NULL && strcmp(text, now) == 0) continue;
        if (strcmp(key, "defaultqos") == 0) add_word(words, "qos+", text);
        add_word(words, key, text[0] != '\0' ? text : cleared(key));
        count++;
    }
    return count;
}

/* An account's default QOS comes after the account, which must be allowed to use it. */
static void add_new(json_t *commands, const char *kind, const char *name, json_t *wanted)
{
    json_t *words = json_pack("[s s s]", "add", kind, name), *first = json_copy(wanted);
    json_t *later = json_pack("[s s s s s]", "modify", kind, "where", name, "set");
    char where[ASH_POLICY_NAME_BYTES + 16];
    const char *users = json_string_value(json_object_get(wanted, "defaultqos"));

    json_object_del(first, "defaultqos");
    if (strcmp(kind, "qos") == 0) json_array_append_new(words, json_string("set"));
    add_fields(words, first, NULL);
    json_decref(first);
    json_array_append_new(commands, words);
    snprintf(where, sizeof(where), "name=%s", name);
    json_array_set_new(later, 3, json_string(where));
    if (users != NULL) {
        add_word(later, "qos+", users);
        add_word(later, "defaultqos", users);
        json_array_append(commands, later);
    }
    json_decref(later);
}

/* An account whose cap of users is gone keeps no default QOS of that name. */
static size_t drop_users(json_t *words, const char *name, const json_t *wanted, const json_t *live)
{
    const char *now = json_string_value(json_object_get(live, "defaultqos"));
    char users[ASH_POLICY_NAME_BYTES + 8];

    snprintf(users, sizeof(users), "%s-users", name);
    if (now == NULL || json_object_get(wanted, "defaultqos") != NULL || strcmp(now, users) != 0) return 0;
    add_word(words, "defaultqos", "-1");
    return 1;
}

static void add_change(json_t *commands, const char *kind, const char *name, json_t *wanted, const json_t *live)
{
    char where[ASH_POLICY_NAME_BYTES + 16];
    json_t *words;

    snprintf(where, sizeof(where), "name=%s", name);
    words = json_pack("[s s s s s]", "modify", kind, "where", where, "set");
    if (add_fields(words, wanted, live) + drop_users(words, name, wanted, live) > 0) json_array_append(commands, words);
    json_decref(words);
}

json_t *ash_slurm_state_changes(const json_t *wanted, const json_t *live)
{
    json_t *commands = json_array(), *changes = json_array(), *fields;
    const char *name;

    for (size_t k = 0; k < ASH_COUNT(kinds); k++) {
        json_t *has = json_object_get(live, kinds[k]);

        json_object_foreach(json_object_get(wanted, kinds[k]), name, fields) {
            json_t *now = json_object_get(has, name);

            if (now == NULL)
                add_new(commands, kinds[k], name, fields);
            else
                add_change(changes, kinds[k], name, fields, now);
        }
    }
    json_array_extend(commands, changes); /* things of before may then name new ones */
    json_decref(changes);
    return commands;
}
