/* Fuzz target: a checkpoint's manifest, as it is and with its own checksum made right, so that its content is read. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "storage/commit/commit.h"
#include "train/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_one(const char *text, size_t size)
{
    struct ash_checkpoint checkpoint = {0};
    struct ash_err err = {0};
    json_t *manifest = NULL;

    if (ash_commit_parse(text, size, "fuzz", &manifest, &err) < 0) return;
    for (size_t i = 0; i < ash_commit_file_count(manifest); i++) {
        struct ash_pieces pieces = {0};
        const char *name;

        if (ash_commit_file(manifest, i, &name, &pieces, &err) == 0) ash_pieces_fini(&pieces);
    }
    ash_checkpoint_decode(manifest, &checkpoint, &err);
    ash_checkpoint_fini(&checkpoint);
    json_decref(manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char tail[] = "  \"manifest_xxh3\": \"%016" PRIx64 "\"\n}\n";
    char *text = malloc(size + 64);
    int tail_bytes;

    if (text == NULL) return 0;
    if (size > 0) memcpy(text, data, size);
    read_one(text, size);
    tail_bytes = snprintf(text + size, 64, tail, (uint64_t)0);
    snprintf(text + size, 64, tail, ash_hash_bytes(text, size + (size_t)tail_bytes, 0));
    read_one(text, size + (size_t)tail_bytes);
    free(text);
    return 0;
}
