/* The fingerprint: a hash of weights, tokenizer, arithmetic, precision and cache type. */
#include "serve/fingerprint.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "compute/backends/backends.h"
#include "serve/engine.h"
#include "storage/gguf/gguf.h"
#include "storage/io/remote_file.h"

static int is_weights(const struct dirent *entry)
{
    size_t bytes = strlen(entry->d_name);

    return strcmp(entry->d_name, "config.json") == 0 ||
           (bytes > 12 && strcmp(entry->d_name + bytes - 12, ".safetensors") == 0);
}

/* config.json and the safetensors of a folder, by name. */
static int hash_folder(const char *dir, uint64_t *hash, struct ash_err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(dir, &entries, is_weights, alphasort), rc = count < 0 ? -errno : 0;
    char path[PATH_MAX];

    for (int i = 0; i < count; i++) {
        if (rc == 0) rc = ash_path_join(path, sizeof(path), dir, entries[i]->d_name);
        if (rc == 0) rc = ash_remote_file_hash(path, hash, err);
        free(entries[i]);
    }
    free(entries);
    return rc < 0 && err->code == 0 ? ash_err_set(err, rc, "cannot read '%.200s': %s", dir, strerror(-rc)) : rc;
}

int ash_engine_fingerprint(struct ash_engine *engine, uint64_t *hash_out, struct ash_err *err)
{
    return ash_engine_fingerprint_of(engine, ash_engine_dir(engine), hash_out, err);
}

int ash_engine_fingerprint_of(struct ash_engine *engine, const char *dir, uint64_t *hash_out, struct ash_err *err)
{
    const struct ash_model *model = ash_engine_model(engine);
    uint64_t hash = ash_tokenizer_hash(ash_engine_tokenizer(engine));
    char buf[ASH_BACKEND_ARITHMETIC_BYTES];
    const char *arithmetic = ash_backend_arithmetic(ash_engine_exec(engine), buf);
    int numbers[2] = {(int)ash_model_kv_dtype(model), ash_model_rounds_bf16(model)};
    char gguf[ASH_GGUF_PATH_BYTES];
    int rc = ash_gguf_locate(dir, gguf) ? ash_remote_file_hash(gguf, &hash, err) : hash_folder(dir, &hash, err);

    if (rc < 0) return rc;
    hash = ash_hash_bytes(numbers, sizeof(numbers), hash);
    *hash_out = ash_hash_bytes(arithmetic, strlen(arithmetic), hash);
    return 0;
}
