/* Writes rows as lines of JSON, which bench/table.c gathers. */
#include "lib/row.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

static json_t *number_or_null(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static double ratio_of(const struct bench_row *row)
{
    if (row->peer == NULL || row->ours <= 0 || row->peer_value <= 0) return 0;
    return row->lower_is_better ? row->peer_value / row->ours : row->ours / row->peer_value;
}

int bench_row_add(const char *path, const struct bench_row *row)
{
    json_t *json =
        json_pack("{s:s, s:s, s:o, s:s?, s:o, s:o, s:o}", "name", row->name, "unit", row->unit, "ours",
                  number_or_null(row->ours), "peer", row->peer, "peer_value", number_or_null(row->peer_value), "ratio",
                  number_or_null(ratio_of(row)), "goal", number_or_null(row->goal));
    FILE *file = json != NULL ? fopen(path, "a") : NULL;
    int rc = 0;

    if (file == NULL || json_dumpf(json, file, JSON_COMPACT) != 0 || fputc('\n', file) == EOF) rc = -EIO;
    if (file != NULL && fclose(file) != 0) rc = -EIO;
    json_decref(json);
    if (rc < 0) fprintf(stderr, "bench: cannot write '%s' to '%s'\n", row->name, path);
    return rc;
}
