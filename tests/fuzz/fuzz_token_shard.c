/* Token shards from arbitrary bytes: opened or refused, and an opened one can be read from end to end. */
#include <stdint.h>
#include <stdlib.h>

#include "train/data/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void read_all(const struct ash_shard *shard)
{
    const struct ash_shard_info *info = ash_shard_get_info(shard);
    size_t begin = 0;

    for (size_t d = 0; d < info->documents; d++) {
        size_t end = ash_shard_doc_end(shard, d), count = end - begin;
        int32_t *ids;

        if (end <= begin || end > info->tokens || ash_shard_doc_at(shard, begin) != d ||
            ash_shard_doc_at(shard, end - 1) != d)
            abort();
        ids = malloc(count * sizeof(*ids)); /* just as large as promised: a sanitizer sees a byte too many */
        if (ids == NULL) return;
        if (ash_shard_read(shard, begin, count, ids, NULL) == 0)
            for (size_t i = 0; i < count; i++)
                if (ids[i] < 0 || (size_t)ids[i] >= info->vocab_size) abort();
        free(ids);
        begin = end;
    }
    if (begin != info->tokens) abort();
    ash_shard_verify(shard, NULL);
    ash_shard_description(shard);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct ash_shard *shard = NULL;
    struct ash_err err = {0};

    if (ash_shard_parse(data, size_bytes, "fuzz", &shard, &err) < 0) {
        if (shard != NULL || err.code >= 0 || err.text[0] == '\0') abort();
        return 0;
    }
    read_all(shard);
    ash_shard_close(shard);
    return 0;
}
