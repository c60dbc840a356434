/* Fuzz target: YAML job files over a table with every type of option. An accepted one must print and read back the
 * same. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "../unit/base/opts_sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static char *print(const struct ash_opts *opts, size_t *size_out)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size_out);

    if (out == NULL) return NULL;
    ash_opts_print_yaml(opts, out);
    fclose(out);
    return text;
}

static void check_round_trip(const struct sample *sample)
{
    struct sample other = {0};
    size_t first_bytes = 0, second_bytes = 0;
    char *first = print(sample->opts, &first_bytes), *second = NULL;

    if (first != NULL && sample_open(&other, NULL) == 0) {
        ash_assert(ash_opts_parse_yaml(other.opts, first, first_bytes, "printed", NULL) == 0);
        second = print(other.opts, &second_bytes);
        ash_assert(second == NULL || (first_bytes == second_bytes && memcmp(first, second, first_bytes) == 0));
    }
    ash_opts_close(other.opts);
    free(first);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct sample sample = {0};
    struct ash_err err = {0};

    if (sample_open(&sample, &err) < 0) return 0;
    int rc = ash_opts_parse_yaml(sample.opts, (const char *)data, size_bytes, "fuzz.yaml", &err);
    ash_assert(rc == 0 || (err.code == rc && err.text[0] != '\0'));
    if (rc == 0) check_round_trip(&sample);
    ash_opts_close(sample.opts);
    return 0;
}
