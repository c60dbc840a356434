/* Fuzz target: tables of measurements, and rows of them as replicas under loads and as training runs. */
#include <stddef.h>
#include <stdint.h>

#include "plan/validate/infer_row.h"
#include "plan/validate/validate_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ash_catalog *catalog;
    const struct ash_consts consts = ash_consts_default();
    struct ash_csv *csv = NULL;
    struct ash_err err = {0};

    if (catalog == NULL && ash_catalog_open(NULL, 0, &catalog, &err) < 0) return 0;
    if (ash_csv_parse((const char *)data, size, "fuzz", &csv, &err) < 0) return 0;
    for (size_t i = 0; i < ash_csv_rows(csv) && i < 20; i++) {
        const struct ash_validate_context world = {&consts, catalog, csv};
        struct ash_validate_row training = {0};
        struct ash_infer_row row;

        if (ash_infer_row_read(catalog, csv, i, &row, &err) == 0) (void)ash_infer_row_predict(&consts, &row);
        (void)ash_validate_training(&world, i, &training);
    }
    ash_csv_close(csv);
    return 0;
}
