/* Fuzz target: a user's catalog file, laid over the built-in one, and cluster texts. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/yaml.h"
#include "infra/catalog.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ash_catalog *builtin;
    struct ash_catalog *catalog = NULL;
    struct ash_cluster cluster;
    json_t *json = NULL;
    char *text = strndup((const char *)data, size);

    if (builtin == NULL) ash_catalog_parse(NULL, 0, "built-in", &builtin, NULL);
    if (text == NULL || builtin == NULL) abort();
    ash_cluster_parse(builtin, text, &cluster, NULL);
    free(text);
    if (ash_yaml_parse((const char *)data, size, "fuzz", &json, NULL) < 0) return 0;
    json_decref(json); /* only what parses is worth the built-in catalog's time */
    if (ash_catalog_parse((const char *)data, size, "fuzz", &catalog, NULL) < 0) return 0;
    for (size_t i = 0; i < ash_catalog_machine_count(catalog); i++)
        if (ash_catalog_machine_at(catalog, i)->gpus < 1 || ash_catalog_machine_at(catalog, i)->gpu == NULL) abort();
    ash_catalog_close(catalog);
    return 0;
}
