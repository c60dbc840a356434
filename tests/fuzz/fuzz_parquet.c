/* Fuzzing the Parquet reader: whatever it gives must be readable memory, a refusal has a sentence, and a row that was
 * read is the same after a seek. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "storage/parquet/parquet.h"

#define ROWS_MAX 2000 /* a few bytes can claim billions of nulls */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

/* Sum the bytes, so that a sanitizer sees those that lie outside. */
static unsigned sum_of(const struct ash_parquet_value *value)
{
    unsigned sum = value->is_null ? 7 : 0;

    for (size_t i = 0; i < value->size_bytes; i++)
        sum = sum * 31 + (uint8_t)value->data[i];
    return sum;
}

/* Read from a row on; the last one's sum goes to *sum_out. Returns the number of rows before the end or an error. */
static uint64_t read_rows(struct ash_parquet *file, uint64_t max, unsigned *sum_out)
{
    struct ash_parquet_value value;
    struct ash_err err = {0};
    uint64_t count = 0;
    int rc = 1;

    while (count < max && (rc = ash_parquet_next(file, &value, &err)) == 1) {
        *sum_out = sum_of(&value);
        count++;
    }
    if (rc < 0) ash_assert(err.code == rc && err.text[0] != '\0');
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static int fd = -1;
    struct ash_parquet *file = NULL;
    struct ash_err err = {0};
    unsigned last = 0, again = 0;
    uint64_t count;
    char path[64];

    if (fd < 0) fd = memfd_create("parquet", 0);
    ash_assert(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size_bytes, 0) == (ssize_t)size_bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (ash_parquet_open(path, "text", &file, &err) < 0) {
        ash_assert(file == NULL && err.code < 0 && err.text[0] != '\0');
        return 0;
    }
    count = read_rows(file, ROWS_MAX, &last);
    ash_assert(count <= ash_parquet_rows(file));
    if (count > 0) {
        ash_assert(ash_parquet_seek(file, count - 1, &err) == 0);
        ash_assert(read_rows(file, 1, &again) == 1 && again == last);
    }
    ash_parquet_close(file);
    return 0;
}
