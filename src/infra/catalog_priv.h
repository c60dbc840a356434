/* What the files of the catalog share. */
#ifndef ASH_INFRA_CATALOG_PRIV_H
#define ASH_INFRA_CATALOG_PRIV_H

#include "infra/catalog.h"

struct ash_catalog {
    json_t *json;
    struct ash_gpu *gpus;
    size_t gpu_count;
    struct ash_machine *machines;
    size_t machine_count;
};

/* Check and read every GPU and machine of catalog->json into the arrays. */
int ash_catalog_read(struct ash_catalog *catalog, struct ash_err *err);

#endif
