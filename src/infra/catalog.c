/* The catalog as a tree: the built-in text, users' files laid over it, and look-ups by name. The tree is kept whole so
 * that sources and disagreements can be shown; catalog_read.c turns it into numbers. */
#include "infra/catalog_priv.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/spelling.h"
#include "base/str.h"
#include "base/yaml.h"

#define NEAR_SHOWN 6 /* names that an error suggests, of each list */

extern const char ash_embed_catalog_yaml[];

static const char *const lists[] = {"gpus", "machines", "storage", "collectives", "contradictions"};

/* As asked for, with or without the maker's name. */
static bool same_name(const char *own, const char *asked)
{
    if (strncasecmp(asked, "NVIDIA ", 7) == 0) asked += 7;
    return ash_spelling_same(own, asked);
}

int ash_catalog_is_named(const json_t *thing, const char *name)
{
    const char *own = json_string_value(json_object_get(thing, "name"));
    const json_t *aliases = json_object_get(thing, "aliases");

    if (own != NULL && same_name(own, name)) return 1;
    for (size_t i = 0; i < json_array_size(aliases); i++) {
        const char *alias = json_string_value(json_array_get(aliases, i));
        if (alias != NULL && same_name(alias, name)) return 1;
    }
    return 0;
}

/* ---- laying one tree over another -------------------------------------------------------------------------------- */

static json_t *find_named(json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (ash_catalog_is_named(json_array_get(list, i), name)) return json_array_get(list, i);
    return NULL;
}

static int merge_list(json_t *into, json_t *from, const char *key, const char *file, struct ash_err *err)
{
    bool named = strcmp(key, "collectives") != 0 && strcmp(key, "contradictions") != 0;

    if (!json_is_array(from)) return ash_err_set(err, -EINVAL, "%.200s: %s must be a list", file, key);
    for (size_t i = 0; i < json_array_size(from); i++) {
        json_t *thing = json_array_get(from, i), *known = NULL;
        const char *name = json_string_value(json_object_get(thing, "name"));

        if (!json_is_object(thing))
            return ash_err_set(err, -EINVAL, "%.200s: %s[%zu] must be a map of facts", file, key, i);
        if (named && (name == NULL || name[0] == '\0'))
            return ash_err_set(err, -EINVAL, "%.200s: %s[%zu] needs a name", file, key, i);
        if (named) known = find_named(into, name);
        if (known != NULL ? json_object_update(known, thing) : json_array_append(into, thing))
            return ash_err_set(err, -ENOMEM, "%.200s: out of memory", file);
    }
    return 0;
}

static bool is_list(const char *key)
{
    for (size_t i = 0; i < ASH_COUNT(lists); i++)
        if (strcmp(lists[i], key) == 0) return true;
    return false;
}

static int merge(json_t *into, json_t *from, const char *file, struct ash_err *err)
{
    const char *key;
    json_t *value;
    int rc = 0;

    if (!json_is_object(from))
        return ash_err_set(err, -EINVAL, "%.200s: a catalog is a map with sources, gpus, machines, ...", file);
    json_object_foreach(from, key, value) {
        if (strcmp(key, "sources") == 0 && json_is_object(value)) {
            rc = json_object_update(json_object_get(into, "sources"), value) == 0 ? 0 : -ENOMEM;
        } else if (is_list(key)) {
            rc = merge_list(json_object_get(into, key), value, key, file, err);
        } else {
            rc = ash_err_set(err, -EINVAL,
                             "%.200s: there is no '%.100s' in a catalog; it has sources, gpus, machines, storage, "
                             "collectives and contradictions",
                             file, key);
        }
        if (rc < 0) return rc;
    }
    return 0;
}

static json_t *empty_tree(void)
{
    json_t *tree = json_object();

    json_object_set_new(tree, "sources", json_object());
    for (size_t i = 0; i < ASH_COUNT(lists); i++)
        json_object_set_new(tree, lists[i], json_array());
    return tree;
}

static int add_text(struct ash_catalog *catalog, const char *text, size_t size_bytes, const char *name,
                    struct ash_err *err)
{
    json_t *tree = NULL;
    int rc = ash_yaml_parse(text, size_bytes, name, &tree, err);

    if (rc == 0) rc = merge(catalog->json, tree, name, err);
    json_decref(tree);
    return rc;
}

static int add_file(struct ash_catalog *catalog, const char *path, struct ash_err *err)
{
    json_t *tree = NULL;
    int rc = ash_yaml_load(path, &tree, err);

    if (rc == 0) rc = merge(catalog->json, tree, path, err);
    json_decref(tree);
    return rc;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static int open_builtin(struct ash_catalog **catalog_out, struct ash_err *err)
{
    struct ash_catalog *catalog = calloc(1, sizeof(*catalog));
    int rc;

    if (catalog == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    catalog->json = empty_tree();
    rc = add_text(catalog, ash_embed_catalog_yaml, strlen(ash_embed_catalog_yaml), "built-in catalog", err);
    if (rc < 0)
        ash_catalog_close(catalog);
    else
        *catalog_out = catalog;
    return rc;
}

static int finish(struct ash_catalog *catalog, int rc, struct ash_catalog **catalog_out, struct ash_err *err)
{
    if (rc == 0) rc = ash_catalog_read(catalog, err);
    if (rc < 0)
        ash_catalog_close(catalog);
    else
        *catalog_out = catalog;
    return rc;
}

int ash_catalog_open(const char *const *files, size_t file_count, struct ash_catalog **catalog_out, struct ash_err *err)
{
    struct ash_catalog *catalog = NULL;
    int rc = open_builtin(&catalog, err);

    ash_assert(files != NULL || file_count == 0);
    if (rc < 0) return rc;
    for (size_t i = 0; i < file_count && rc == 0; i++)
        rc = add_file(catalog, files[i], err);
    return finish(catalog, rc, catalog_out, err);
}

int ash_catalog_parse(const char *text, size_t size_bytes, const char *name, struct ash_catalog **catalog_out,
                      struct ash_err *err)
{
    struct ash_catalog *catalog = NULL;
    int rc = open_builtin(&catalog, err);

    if (rc < 0) return rc;
    if (text != NULL) rc = add_text(catalog, text, size_bytes, name, err);
    return finish(catalog, rc, catalog_out, err);
}

void ash_catalog_close(struct ash_catalog *catalog)
{
    if (catalog == NULL) return;
    json_decref(catalog->json);
    free(catalog->gpus);
    free(catalog->machines);
    free(catalog);
}

/* ---- look-ups ---------------------------------------------------------------------------------------------------- */

/* How near name is to a thing's name or one of its other names; SIZE_MAX: not near. */
static size_t nearness(const json_t *thing, const char *name)
{
    const json_t *aliases = json_object_get(thing, "aliases");
    size_t least = ash_spelling_nearness(name, json_string_value(json_object_get(thing, "name")));

    for (size_t i = 0; i < json_array_size(aliases); i++)
        least = ash_min(least, ash_spelling_nearness(name, json_string_value(json_array_get(aliases, i))));
    return least;
}

/* Add the names of things that are near name, at most NEAR_SHOWN. */
static void add_near(const json_t *things, const char *name, struct ash_str *names)
{
    for (size_t i = 0, shown = 0; i < json_array_size(things) && shown < NEAR_SHOWN; i++) {
        const json_t *thing = json_array_get(things, i);

        if (nearness(thing, name) == SIZE_MAX) continue;
        ash_str_addf(names, "%s%s",
                     names->data != NULL ? ", " : "; nearest: ", json_string_value(json_object_get(thing, "name")));
        shown++;
    }
}

/* A cluster may be named by its GPUs, so a machine that is not there may be a misspelt GPU. */
static int no_such(const struct ash_catalog *catalog, const char *what, const char *name, struct ash_err *err)
{
    struct ash_str names = {0};

    if (strcmp(what, "machine") == 0) add_near(json_object_get(catalog->json, "machines"), name, &names);
    add_near(json_object_get(catalog->json, "gpus"), name, &names);
    ash_err_set(err, -ENOENT, "there is no %s '%.80s' in the catalog%s (all: ashlar catalog ls)", what, name,
                names.data != NULL ? names.data : "");
    ash_str_fini(&names);
    return -ENOENT;
}

int ash_catalog_gpu(const struct ash_catalog *catalog, const char *name, const struct ash_gpu **gpu_out,
                    struct ash_err *err)
{
    const json_t *things = json_object_get(catalog->json, "gpus");

    for (size_t i = 0; i < catalog->gpu_count; i++) {
        if (!ash_catalog_is_named(json_array_get(things, i), name)) continue;
        *gpu_out = &catalog->gpus[i];
        return 0;
    }
    return no_such(catalog, "GPU", name, err);
}

int ash_catalog_machine(const struct ash_catalog *catalog, const char *name, const struct ash_machine **machine_out,
                        struct ash_err *err)
{
    const json_t *things = json_object_get(catalog->json, "machines");

    for (size_t i = 0; i < catalog->machine_count; i++) {
        if (!ash_catalog_is_named(json_array_get(things, i), name)) continue;
        *machine_out = &catalog->machines[i];
        return 0;
    }
    return no_such(catalog, "machine", name, err);
}

/* Letters and digits of name that text begins with, whatever is between them; 0 where it does not begin so, or where
 * the word continues ("A10" is not in "A100"). */
static size_t begins_with(const char *text, const char *name)
{
    size_t length = 0;
    char last = '\0';

    for (; *name != '\0'; name++) {
        if (!isalnum((unsigned char)*name)) continue;
        while (*text != '\0' && !isalnum((unsigned char)*text) && length > 0)
            text++;
        if (tolower((unsigned char)*text) != tolower((unsigned char)*name)) return 0;
        last = *text++;
        length++;
    }
    if (isdigit((unsigned char)last) ? isdigit((unsigned char)*text) : isalpha((unsigned char)*text)) return 0;
    return length;
}

/* How much of a name is anywhere in text, at the start of a word or after a count ("8xH100"). */
static size_t found_in(const char *text, const char *name)
{
    size_t most = 0;

    for (const char *at = text; *at != '\0'; at++) {
        bool counted = at >= text + 2 && tolower((unsigned char)at[-1]) == 'x' && isdigit((unsigned char)at[-2]);
        size_t length = at == text || !isalnum((unsigned char)at[-1]) || counted ? begins_with(at, name) : 0;

        if (length > most) most = length;
    }
    return most;
}

/* The index of the thing of a list of which most is in text; count where none does. */
static size_t longest_in(const json_t *things, size_t count, const char *text)
{
    size_t best = count, most = 1; /* one letter is no name */

    for (size_t i = 0; i < count; i++) {
        const json_t *thing = json_array_get(things, i), *aliases = json_object_get(thing, "aliases");
        size_t length = found_in(text, json_string_value(json_object_get(thing, "name")));

        for (size_t k = 0; k < json_array_size(aliases); k++) {
            const char *alias = json_string_value(json_array_get(aliases, k));
            size_t other = alias != NULL ? found_in(text, alias) : 0;
            if (other > length) length = other;
        }
        if (length <= most) continue;
        most = length;
        best = i;
    }
    return best;
}

const struct ash_gpu *ash_catalog_gpu_in(const struct ash_catalog *catalog, const char *text)
{
    size_t i = longest_in(json_object_get(catalog->json, "gpus"), catalog->gpu_count, text);

    return ash_catalog_gpu_at(catalog, i);
}

const struct ash_machine *ash_catalog_machine_in(const struct ash_catalog *catalog, const char *text)
{
    size_t i = longest_in(json_object_get(catalog->json, "machines"), catalog->machine_count, text);

    return ash_catalog_machine_at(catalog, i);
}

size_t ash_catalog_gpu_count(const struct ash_catalog *catalog)
{
    return catalog->gpu_count;
}

const struct ash_gpu *ash_catalog_gpu_at(const struct ash_catalog *catalog, size_t index)
{
    return index < catalog->gpu_count ? &catalog->gpus[index] : NULL;
}

size_t ash_catalog_machine_count(const struct ash_catalog *catalog)
{
    return catalog->machine_count;
}

const struct ash_machine *ash_catalog_machine_at(const struct ash_catalog *catalog, size_t index)
{
    return index < catalog->machine_count ? &catalog->machines[index] : NULL;
}

const json_t *ash_catalog_json(const struct ash_catalog *catalog)
{
    return catalog->json;
}
