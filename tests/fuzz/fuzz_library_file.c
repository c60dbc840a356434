/* Fuzz target: files of stored algorithms. An accepted file is whole: written again it has the same bytes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "compute/cuda/gemm/library_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ash_library_key key = {"GPU", 13000, 130100};
    static struct ash_library_choices choices;
    uint64_t sum;
    uint8_t *copy = malloc(size + sizeof(sum));

    if (copy == NULL) return 0;
    memcpy(copy, data, size);
    sum = ash_hash_bytes(copy, size, 0); /* a valid one: no mutation finds that */
    memcpy(copy + size, &sum, sizeof(sum));
    ash_library_file_decode(data, size, &key, &choices);
    ash_library_file_decode(copy, size + sizeof(sum), &key, &choices);
    if (choices.count > 0) {
        uint8_t *again = malloc(ash_library_file_bytes(choices.count));

        if (again != NULL) ash_library_file_encode(&key, &choices, again);
        if (again != NULL && memcmp(again, copy, size + sizeof(sum)) != 0) abort();
        free(again);
    }
    free(copy);
    return 0;
}
