/* A policy as accounts and QOS of Slurm. A stand-in of sacctmgr obeys the commands and prints its state: then it is the
 * policy's and nothing is left to change, from nothing and from another policy's state. Then lines as a real one printed
 * them, and lines that it does not print. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "base/str.h"
#include "queue/policy/slurm_state.h"

#define DRAWN 300

/* ---- the stand-in: {"qos": {NAME: {FIELD: TEXT}}, "account": ...} ------------------------------------------------ */

static const char *text_of(const json_t *fields, const char *key)
{
    const char *text = json_string_value(json_object_get(fields, key));

    return text != NULL && strcmp(text, "gres/gpu=-1") != 0 && strcmp(text, "-1") != 0 ? text : "";
}

/* A QOS that another one names must be there, and so must an account's parent and default QOS. */
static void check_named(const json_t *model, const char *key, const char *value)
{
    const char *where = strcmp(key, "parent") == 0 ? "account" : "qos";
    bool is_name = strcmp(key, "parent") == 0 || strcmp(key, "defaultqos") == 0 || strcmp(key, "Preempt") == 0;
    char copy[512], *next = copy, *name;

    if (!is_name || strcmp(value, "root") == 0 || strcmp(value, "-1") == 0) return;
    snprintf(copy, sizeof(copy), "%s", value);
    while ((name = strsep(&next, ",")) != NULL)
        if (name[0] != '\0' && json_object_get(json_object_get(model, where), name) == NULL)
            fail_msg("%s=%s is said before there is a %s %s", key, value, where, name);
}

static void obey(json_t *model, const json_t *words)
{
    const char *kind = json_string_value(json_array_get(words, 1)), *name = json_string_value(json_array_get(words, 2));
    json_t *things = json_object_get(model, kind), *thing;
    bool is_new = strcmp(json_string_value(json_array_get(words, 0)), "add") == 0;

    if (is_new) {
        if (json_object_get(things, name) != NULL) fail_msg("%s %s is added twice", kind, name);
        json_object_set_new(things, name, json_object());
    } else {
        name = json_string_value(json_array_get(words, 3)) + strlen("name=");
    }
    thing = json_object_get(things, name);
    assert_non_null(thing);
    for (size_t i = is_new ? 3 : 5; i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i)), *equals = strchr(word, '=');
        char key[64];

        if (strcmp(word, "set") == 0 || strncmp(word, "qos+=", 5) == 0) continue;
        assert_non_null(equals);
        snprintf(key, sizeof(key), "%.*s", (int)(equals - word), word);
        check_named(model, key, equals + 1);
        json_object_set_new(thing, key, json_string(equals + 1));
    }
}

/* In reverse order, as another program may print it. */
static void print_model(const json_t *model, struct ash_str *qos, struct ash_str *accounts)
{
    const char *name;
    json_t *fields;

    ash_str_adds(qos, "normal|0|||\n");
    json_object_foreach(json_object_get(model, "qos"), name, fields)
        ash_str_addf(qos, "%s|%s|%s|%s|%s\n", name, text_of(fields, "Priority"), text_of(fields, "Preempt"),
                     text_of(fields, "Flags"), text_of(fields, "MaxTRESPerUser"));
    ash_str_adds(accounts, "ashlar|root|||1|||normal|\nashlar|root|root||1|||normal|\n");
    json_object_foreach(json_object_get(model, "account"), name, fields)
        ash_str_addf(accounts, "ashlar|%s||%s|%s|%s|%s|normal|%s\n", name, text_of(fields, "parent"),
                     text_of(fields, "fairshare"), text_of(fields, "GrpTRES"), text_of(fields, "MaxTRESPerJob"),
                     text_of(fields, "defaultqos"));
}

static json_t *changes_of(const struct ash_policy_conf *conf, const json_t *model)
{
    struct ash_str qos = {0}, accounts = {0};
    json_t *wanted = NULL, *live = NULL, *changes;
    struct ash_err err = {0};

    print_model(model, &qos, &accounts);
    if (ash_slurm_state_of(conf, &wanted, &err) < 0 || ash_slurm_state_read(qos.data, accounts.data, &live, &err) < 0)
        fail_msg("%s", err.text);
    changes = ash_slurm_state_changes(wanted, live);
    assert_non_null(changes);
    json_decref(wanted);
    json_decref(live);
    ash_str_fini(&qos);
    ash_str_fini(&accounts);
    return changes;
}

/* ---- drawn policies ---------------------------------------------------------------------------------------------- */

static void draw(uint64_t seed, uint64_t variant, struct ash_policy_conf *conf)
{
    struct ash_str text = {0};
    struct ash_err err = {0};
    size_t queues = 1 + ash_rng_below(seed, 1, 0, 6);

#define DRAW(stream, index, below) ash_rng_below(seed + variant * 1000, stream, index, below)
    ash_str_adds(&text, "preset: kueue\nclasses:\n");
    for (size_t i = 0; i < 3; i++)
        ash_str_addf(&text, "  - {name: class-%zu, priority: %d, preemptible: %s}\n", i, (int)DRAW(2, i, 100),
                     DRAW(3, i, 2) ? "true" : "false");
    ash_str_adds(&text, "queues:\n");
    for (size_t i = 0; i < queues; i++) {
        ash_str_addf(&text, "  - {name: team-%zu, shares: %d", i, (int)(1 + DRAW(4, i, 9)));
        if (DRAW(7, i, 2)) ash_str_addf(&text, ", gpus: %d", (int)DRAW(8, i, 64));
        if (i > 0 && DRAW(5, i, 2)) { /* only those below another one borrow */
            ash_str_addf(&text, ", parent: team-%d", (int)DRAW(6, i, i));
            if (DRAW(7, i, 2)) ash_str_addf(&text, ", borrow: %d", (int)DRAW(9, i, 64));
        }
        if (DRAW(10, i, 3) == 0) ash_str_addf(&text, ", max_user_gpus: %d", (int)(1 + DRAW(11, i, 8)));
        if (DRAW(12, i, 3) == 0) ash_str_addf(&text, ", max_job_gpus: %d", (int)(1 + DRAW(13, i, 8)));
        ash_str_adds(&text, "}\n");
    }
    if (ash_policy_conf_parse(text.data, strlen(text.data), "drawn", conf, &err) < 0)
        fail_msg("%s\n%s", err.text, text.data);
    ash_str_fini(&text);
}

static void test_applied_is_equal(void **state)
{
    size_t most = 0;

    (void)state;
    for (uint64_t seed = 0; seed < DRAWN; seed++) {
        json_t *model = json_pack("{s{s{}} s{s{}}}", "qos", "normal", "account", "root");

        for (uint64_t variant = 0; variant < 3; variant++) { /* of the same teams */
            struct ash_policy_conf conf = {0};
            json_t *changes, *words;
            size_t i;

            draw(seed, variant, &conf);
            changes = changes_of(&conf, model);
            json_array_foreach(changes, i, words)
                obey(model, words);
            if (json_array_size(changes) > most) most = json_array_size(changes);
            json_decref(changes);
            changes = changes_of(&conf, model);
            if (json_array_size(changes) != 0)
                fail_msg("policy %d.%d: %s is left", (int)seed, (int)variant,
                         json_string_value(json_array_get(json_array_get(changes, 0), 3)));
            json_decref(changes);
            ash_policy_conf_fini(&conf);
        }
        json_decref(model);
    }
    assert_true(most > 6);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void test_lines_of_slurm(void **state)
{
    static const char qos[] = "normal|0|||\nb|50||DenyOnLimit|\na|90|d,b|DenyOnLimit|gres/gpu=4\n";
    static const char accounts[] =
        "ashlar|root|||1|||normal|\nashlar|root|root||1|||normal|\n"
        "ashlar|interactive||root|1|gres/gpu=8|gres/gpu=4|interactive-users,normal|interactive-users\n";
    struct ash_err err = {0};
    json_t *live = NULL, *fields;

    (void)state;
    assert_int_equal(ash_slurm_state_read(qos, accounts, &live, &err), 0);
    fields = json_object_get(json_object_get(live, "qos"), "a");
    assert_string_equal(json_string_value(json_object_get(fields, "Preempt")), "b,d");
    assert_string_equal(json_string_value(json_object_get(fields, "MaxTRESPerUser")), "gres/gpu=4");
    fields = json_object_get(json_object_get(live, "account"), "interactive");
    assert_string_equal(json_string_value(json_object_get(fields, "MaxTRESPerJob")), "gres/gpu=4");
    assert_string_equal(json_string_value(json_object_get(fields, "defaultqos")), "interactive-users");
    json_decref(live);
    live = NULL;
    assert_int_equal(ash_slurm_state_read("sacctmgr: error\n", accounts, &live, &err), -EINVAL);
    assert_non_null(strstr(err.text, "not 5 fields"));
    assert_int_equal(ash_slurm_state_read(qos, "one|a||root|1||||\ntwo|a||root|1||||\n", &live, &err), -EINVAL);
    assert_non_null(strstr(err.text, "clusters one and two"));
    assert_null(live);
}

static void test_names_that_fall_together(void **state)
{
    static const char text[] = "preset: slurm\nqueues: [{name: Team A}, {name: team-a}]\n";
    struct ash_policy_conf conf = {0};
    struct ash_err err = {0};
    json_t *wanted = NULL;

    (void)state;
    assert_int_equal(ash_policy_conf_parse(text, strlen(text), "text", &conf, &err), 0);
    assert_int_equal(ash_slurm_state_of(&conf, &wanted, &err), -EINVAL);
    assert_non_null(strstr(err.text, "one name"));
    ash_policy_conf_fini(&conf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_applied_is_equal), cmocka_unit_test(test_lines_of_slurm),
                                       cmocka_unit_test(test_names_that_fall_together)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
