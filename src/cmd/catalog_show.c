/* ashlar catalog show: every fact about one entry, its source and contradicting sources. */
#include "cmd/catalog_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

struct flags {
    bool json;
    struct ash_catalog_flags machines;
};

static const struct ash_opt show_opts[] = {
    {"json", ASH_OPT_BOOL, offsetof(struct flags, json), NULL, "print one JSON object with the sources' addresses", 0,
     0, NULL},
};

static const struct ash_opt_table show_table = {
    .section = "", .help = "flags", .opts = show_opts, .count = ASH_COUNT(show_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar catalog show NAME [flags]",
    .about = "Shows every fact about a GPU, a machine or a storage tier, with the source of each value and the other\n"
             "published values that disagree. Measured collectives and contradictions that name it follow.",
    .examples = "  ashlar catalog show p5.48xlarge\n  ashlar catalog show H100 --json",
};

/* ---- gathering --------------------------------------------------------------------------------------------------- */

static json_t *find(const json_t *all, const char *name, const char **list_out)
{
    static const char *const named[] = {"machines", "gpus", "storage"};

    for (size_t l = 0; l < ASH_COUNT(named); l++) {
        const json_t *things = json_object_get(all, named[l]);
        for (size_t i = 0; i < json_array_size(things); i++) {
            if (!ash_catalog_is_named(json_array_get(things, i), name)) continue;
            *list_out = named[l];
            return json_array_get(things, i);
        }
    }
    return NULL;
}

/* Those of list whose field mentions word. */
static json_t *mentions(const json_t *all, const char *list, const char *field, const char *word)
{
    const json_t *things = json_object_get(all, list);
    json_t *found = json_array();

    for (size_t i = 0; i < json_array_size(things); i++) {
        json_t *thing = json_array_get(things, i);
        const char *text = json_string_value(json_object_get(thing, field));
        if (text != NULL && strcasestr(text, word) != NULL) json_array_append(found, thing);
    }
    return found;
}

/* "p5" of "p5.48xlarge", "H100" of "H100-SXM5-80GB": what tables call a thing. */
static void family(const char *name, char *buf, size_t buf_bytes)
{
    size_t length = strcspn(name, ".");

    if (name[length] == '\0') length = strcspn(name, "-");
    snprintf(buf, buf_bytes, "%.*s", (int)length, name);
}

static void collect_sources(const json_t *all, const json_t *node, json_t *into)
{
    const json_t *known = json_object_get(all, "sources");
    const char *key;
    json_t *value;

    if (json_is_array(node)) {
        for (size_t i = 0; i < json_array_size(node); i++)
            collect_sources(all, json_array_get(node, i), into);
        return;
    }
    json_object_foreach((json_t *)node, key, value) {
        size_t count = json_is_array(value) ? json_array_size(value) : 1;
        for (size_t i = 0; strcmp(key, "source") == 0 && i < count; i++) {
            const char *id = json_string_value(json_is_array(value) ? json_array_get(value, i) : value);
            if (id != NULL && json_object_get(known, id) != NULL) json_object_set(into, id, json_object_get(known, id));
        }
        collect_sources(all, value, into);
    }
}

static json_t *gather(const json_t *all, const char *name)
{
    const char *list = NULL;
    json_t *thing = find(all, name, &list), *facts, *sources;
    char word[64];

    if (thing == NULL) return NULL;
    family(json_string_value(json_object_get(thing, "name")), word, sizeof(word));
    facts = json_object();
    sources = json_object();
    json_object_set_new(facts, "list", json_string(list));
    json_object_set(facts, "facts", thing);
    json_object_set_new(facts, "collectives", mentions(all, "collectives", "hardware", word));
    json_object_set_new(facts, "contradictions", mentions(all, "contradictions", "topic", word));
    collect_sources(all, facts, sources);
    json_object_set_new(facts, "sources", sources);
    return facts;
}

/* ---- lines for people -------------------------------------------------------------------------------------------- */

static void print_value(const json_t *value)
{
    char *text;

    if (json_is_string(value)) {
        printf("%s", json_string_value(value));
    } else if (value == NULL || json_is_null(value)) {
        printf("unknown");
    } else {
        text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10));
        printf("%s", text != NULL ? text : "?");
        free(text);
    }
}

static void print_sources(const json_t *source)
{
    size_t count = json_is_array(source) ? json_array_size(source) : source != NULL ? 1 : 0;

    for (size_t i = 0; i < count; i++)
        printf("%s%s", i == 0 ? "  [" : ", ",
               json_string_value(json_is_array(source) ? json_array_get(source, i) : source));
    if (count > 0) printf("]");
}

static void print_note(const json_t *fact)
{
    const char *note = json_string_value(json_object_get(fact, "note"));

    if (note != NULL) printf("  %s", note);
}

static void print_fact(const char *name, const json_t *fact)
{
    const json_t *also = json_object_get(fact, "also");

    printf("  %-22s ", name);
    print_value(json_is_object(fact) ? json_object_get(fact, "value") : fact);
    print_sources(json_object_get(fact, "source"));
    print_note(fact);
    printf("\n");
    for (size_t i = 0; i < json_array_size(also); i++) {
        const json_t *other = json_array_get(also, i);

        printf("  %-22s ", "  but also");
        print_value(json_object_get(other, "value"));
        print_sources(json_object_get(other, "source"));
        print_note(other);
        printf("\n");
    }
}

static void print_table(const json_t *table)
{
    const json_t *columns = json_object_get(table, "columns"), *rows = json_object_get(table, "rows");

    printf("\n%s: %s", json_string_value(json_object_get(table, "hardware")),
           json_string_value(json_object_get(table, "op")));
    print_sources(json_object_get(table, "source"));
    print_note(table);
    printf("\n ");
    for (size_t i = 0; i < json_array_size(columns); i++)
        printf(" %16s", json_string_value(json_array_get(columns, i)));
    printf("\n");
    for (size_t r = 0; r < json_array_size(rows); r++) {
        printf(" ");
        for (size_t i = 0; i < json_array_size(json_array_get(rows, r)); i++) {
            const json_t *value = json_array_get(json_array_get(rows, r), i);
            if (json_is_number(value))
                printf(" %16.10g", json_number_value(value));
            else
                printf(" %16s", json_is_string(value) ? json_string_value(value) : "-");
        }
        printf("\n");
    }
}

static void print_facts(const json_t *facts)
{
    const json_t *thing = json_object_get(facts, "facts"), *tables = json_object_get(facts, "collectives");
    const json_t *clashes = json_object_get(facts, "contradictions");
    const char *key;
    json_t *value;

    printf("%s\n", json_string_value(json_object_get(thing, "name")));
    json_object_foreach((json_t *)thing, key, value)
        if (strcmp(key, "name") != 0) print_fact(key, value);
    for (size_t i = 0; i < json_array_size(tables); i++)
        print_table(json_array_get(tables, i));
    if (json_array_size(clashes) > 0) printf("\nwhere sources disagree\n");
    for (size_t i = 0; i < json_array_size(clashes); i++)
        printf("  %s: %s\n", json_string_value(json_object_get(json_array_get(clashes, i), "topic")),
               json_string_value(json_object_get(json_array_get(clashes, i), "finding")));
    printf("\nsources\n");
    json_object_foreach(json_object_get(facts, "sources"), key, value)
        printf("  %-16s %s\n", key, json_string_value(value));
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int not_found(const struct ash_catalog *catalog, const char *name)
{
    const struct ash_machine *machine = NULL;
    struct ash_err err = {0};

    ash_catalog_machine(catalog, name, &machine, &err);
    return ash_cmd_fail(&err);
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *name)
{
    const struct flags *flags = ctx;
    struct ash_catalog *catalog = NULL;
    struct ash_err err = {0};
    json_t *facts;
    int code = 0;

    (void)opts;
    if (ash_cmd_catalog_open(&flags->machines, &catalog, &err) < 0) return ash_cmd_fail(&err);
    facts = gather(ash_catalog_json(catalog), name);
    if (facts == NULL)
        code = not_found(catalog, name);
    else if (!flags->json)
        print_facts(facts);
    else if (ash_cmd_print_json(json_incref(facts), &err) < 0)
        code = ash_cmd_fail(&err);
    json_decref(facts);
    ash_catalog_close(catalog);
    return code;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&show_table, &flags}, {&ash_catalog_table, &flags.machines}},
                                      .takes_word = true,
                                      .missing_word = "which machine or GPU?",
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_catalog_show = {"show", "every fact about one thing, who says it, who says otherwise",
                                             run};
