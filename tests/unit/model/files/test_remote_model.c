/* Models whose weights are in another place: the bits of local ones, on every backend; a slice reads its own bytes alone;
 * reads that fail end with their sentence. The other place is a folder here, and counts what is read of it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/math.h"
#include "base/rng.h"
#include "model/files/open.h"
#include "model/files/save.h"
#include "model/model_priv.h"
#include "storage/io/remote_file.h"
#include "unit/model/golden_models.h"
#include "unit/model/infer_rows.h"

#define ROWS 33
#define SLACK_BYTES ((size_t)512 << 10) /* a header's guess, and gaps that are read along */

static char scratch[256];

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof(scratch), "/tmp/ashlar-test-remote-XXXXXX");
    return mkdtemp(scratch) == NULL;
}

static int remove_scratch(void **state)
{
    (void)state;
    return ash_dir_remove(scratch, NULL);
}

/* ---- the other place --------------------------------------------------------------------------------------------- */

/* One file of it. Lives as long as the process: so do remote files. */
struct place {
    struct place *next;
    _Atomic size_t read_bytes, reads;
    _Atomic size_t fails_after; /* reads; 0: none fails */
    char path[];
};

static struct place *places;

static int read_place(void *ctx, uint64_t offset, void *data, size_t size_bytes, struct ash_err *err)
{
    struct place *place = ctx;
    size_t number = atomic_fetch_add(&place->reads, 1) + 1, limit = atomic_load(&place->fails_after);
    int fd = open(place->path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? pread(fd, data, size_bytes, (off_t)offset) : -1;

    if (fd >= 0) close(fd);
    atomic_fetch_add(&place->read_bytes, size_bytes);
    if (limit > 0 && number > limit) return ash_err_set(err, -EIO, "the place is gone");
    return bytes == (ssize_t)size_bytes ? 0 : ash_err_set(err, -EIO, "%zu bytes cannot be read", size_bytes);
}

static const struct ash_remote_file_ops place_ops = {.size = sizeof(place_ops), .read = read_place};

static struct place *add_place(const char *from, const char *path)
{
    struct place *place = calloc(1, sizeof(*place) + strlen(from) + 1);
    struct ash_remote_file file = {.ops = &place_ops, .ctx = place};
    struct stat info;

    assert_non_null(place);
    memcpy(place->path, from, strlen(from) + 1);
    place->next = places;
    places = place;
    assert_int_equal(stat(from, &info), 0);
    file.size_bytes = (uint64_t)info.st_size;
    assert_int_equal(ash_remote_file_add(path, &file), 0);
    return place;
}

/* A folder `to` as from, whose weights are empty files here and remote. Returns the place of one of them. */
static struct place *mirror(const char *from, const char *to)
{
    static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors.index.json"};
    struct place *place = NULL;
    char source[600], path[600];

    assert_int_equal(ash_dir_make(to, NULL), 0);
    for (size_t i = 0; i < ASH_COUNT(names); i++) {
        char *bytes = NULL;
        size_t size_bytes = 0;

        snprintf(source, sizeof(source), "%s/%s", from, names[i]);
        snprintf(path, sizeof(path), "%s/%s", to, names[i]);
        if (ash_file_read(source, (size_t)1 << 20, &bytes, &size_bytes, NULL) < 0) continue;
        assert_int_equal(ash_file_replace(path, bytes, size_bytes, NULL), 0);
        free(bytes);
    }
    for (int shard = 0; shard < 9; shard++) {
        char name[64] = "model.safetensors";

        for (int of = shard; of < 9 && shard > 0; of++) {
            snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors", shard, of);
            snprintf(source, sizeof(source), "%s/%s", from, name);
            if (ash_path_exists(source)) break;
        }
        snprintf(source, sizeof(source), "%s/%s", from, name);
        snprintf(path, sizeof(path), "%s/%s", to, name);
        if (!ash_path_exists(source)) continue;
        assert_int_equal(ash_file_replace(path, "", 0, NULL), 0);
        place = add_place(source, path);
    }
    assert_non_null(place);
    return place;
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

static float *logits_of(struct ash_model *model, struct ash_exec *exec)
{
    size_t vocab = ash_model_get_config(model)->vocab;
    int32_t ids[ROWS];

    for (size_t i = 0; i < ROWS; i++)
        ids[i] = (int32_t)ash_rng_below(3, 1, i, vocab);
    return infer_rows(model, exec, ids, ROWS, ROWS);
}

/* Streamed while the first pass runs, and brought whole. Takes model, which is the one at dir, here. */
static void check_same_bits(struct ash_model *model, const char *dir, const char *backend, bool bf16)
{
    struct ash_model *other = NULL;
    struct ash_exec exec = {0};
    struct ash_err err = {0};
    float *local;
    size_t vocab = ash_model_get_config(model)->vocab;

    if (ash_exec_init(&exec, backend, 2, &err) < 0) fail_msg("%s", err.text);
    ash_model_round_bf16(model, bf16);
    local = logits_of(model, &exec);
    for (int is_lazy = 0; is_lazy < 2; is_lazy++) {
        float *remote;
        int rc = is_lazy ? ash_model_open_lazy(dir, &other, &err) : ash_model_open(dir, &other, &err);

        if (rc < 0) fail_msg("%s: %s", dir, err.text);
        ash_model_round_bf16(other, bf16);
        if (is_lazy && ash_model_prefetch(other, &exec, &err) < 0) fail_msg("%s: %s", dir, err.text);
        remote = logits_of(other, &exec);
        assert_memory_equal(local, remote, ROWS * vocab * sizeof(float));
        free(remote);
        ash_model_close(other);
    }
    free(local);
    ash_model_close(model);
    ash_exec_fini(&exec);
}

static void check_bits(const char *name, const char *backend, bool bf16)
{
    char from[GOLDEN_PATH_BYTES], dir[600];

    snprintf(dir, sizeof(dir), "%s/%s", scratch, name);
    if (!ash_path_exists(dir)) mirror(golden_path(name, from), dir);
    check_same_bits(golden_open(name), dir, backend, bf16);
}

static void test_bits(void **state)
{
    (void)state;
    for (const char *const *backend = ash_exec_backends(); *backend != NULL; backend++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            for (size_t i = 0; i < GOLDEN_MODEL_COUNT; i += GOLDEN_MODEL_STEP)
                check_bits(golden_models[i], *backend, bf16);
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */

/* A model of some 17 MB. */
static void save_large(const char *dir)
{
    json_t *json =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "model_type", "llama", "vocab_size", 4096,
                  "hidden_size", 256, "num_hidden_layers", 4, "num_attention_heads", 8, "num_key_value_heads", 4,
                  "intermediate_size", 768, "max_position_embeddings", 128, "tie_word_embeddings", 0);
    struct ash_model_config config;
    struct ash_model *model = NULL;
    struct ash_err err = {0};

    assert_non_null(json);
    if (ash_model_config_parse(json, &config, &err) < 0) fail_msg("%s", err.text);
    json_decref(json);
    if (ash_model_create(&config, 7, &model, &err) < 0) fail_msg("%s", err.text);
    if (ash_model_save(model, dir, ASH_BF16, 0, NULL, &err) < 0) fail_msg("%s", err.text);
    ash_model_close(model);
}

static struct ash_slice draw_slice(const struct ash_model_config *config, uint64_t seed)
{
    struct ash_slice slice = ash_slice_whole(config);

    slice.tp_size = (size_t)1 << ash_rng_below(seed, 1, 0, 2);
    slice.tp_rank = ash_rng_below(seed, 2, 0, slice.tp_size);
    slice.shard_size = (size_t)1 << ash_rng_below(seed, 3, 0, 3);
    slice.shard_rank = ash_rng_below(seed, 4, 0, slice.shard_size);
    slice.shard_weights = ash_rng_below(seed, 5, 0, 2) == 1;
    for (size_t i = 0; i < config->layers; i++)
        slice.layers[i] = (uint8_t)ash_rng_below(seed, 6, i, 2);
    slice.layers[seed % config->layers] = 1;
    slice.embed = ash_rng_below(seed, 7, 0, 2) == 1;
    slice.head = ash_rng_below(seed, 8, 0, 2) == 1;
    return slice;
}

/* Bytes of the file that a slice holds; of matrices whose columns are cut, all rows are read. */
static size_t needed_bytes(const struct ash_model *model)
{
    size_t bytes = 0;

    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        const struct ash_param *param = ash_model_param(model, i);
        size_t pieces = ash_param_piece_count(param), first = SIZE_MAX, end = 0;

        for (size_t p = 0; p < pieces; p++) {
            struct ash_piece held = ash_model_held(model, param, p);

            if (held.count == 0) continue;
            first = ash_min(first, held.full);
            end = ash_max(end, held.full + held.count);
        }
        bytes += end > 0 ? (end - first) * sizeof(uint16_t) : 0;
    }
    return bytes;
}

static void test_slices(void **state)
{
    char from[600], dir[600];
    struct place *place;
    struct ash_model *whole = NULL;
    size_t least = SIZE_MAX;

    (void)state;
    snprintf(from, sizeof(from), "%s/large", scratch);
    snprintf(dir, sizeof(dir), "%s/large-remote", scratch);
    save_large(from);
    place = mirror(from, dir);
    assert_int_equal(ash_model_open(from, &whole, NULL), 0);
    for (uint64_t seed = 1; seed <= (SANITIZED ? 6 : 24); seed++) {
        struct ash_slice slice = draw_slice(ash_model_get_config(whole), seed);
        struct ash_model *local = NULL, *remote = NULL;
        struct ash_err err = {0};
        size_t before = atomic_load(&place->read_bytes), bytes;

        if (ash_model_open_slice(from, &slice, &local, &err) < 0) fail_msg("seed %d: %s", (int)seed, err.text);
        if (ash_model_open_slice(dir, &slice, &remote, &err) < 0) fail_msg("seed %d: %s", (int)seed, err.text);
        assert_int_equal(ash_model_size(local), ash_model_size(remote));
        assert_memory_equal(ash_model_values(local), ash_model_values(remote), ash_model_size(local) * sizeof(float));
        bytes = atomic_load(&place->read_bytes) - before;
        if (bytes > needed_bytes(remote) + SLACK_BYTES)
            fail_msg("seed %d: %zu bytes were read for %zu", (int)seed, bytes, needed_bytes(remote));
        least = ash_min(least, bytes);
        ash_model_close(local);
        ash_model_close(remote);
    }
    assert_true(least < ash_model_weight_count(whole) * sizeof(uint16_t) / 4);
    ash_model_close(whole);
}

/* ---- GGUF -------------------------------------------------------------------------------------------------------- */

/* The file of llama.cpp or of the writer at from, as a remote one. */
static struct place *mirror_gguf(const char *from, const char *name, char path[600])
{
    snprintf(path, 600, "%s/%s", scratch, name);
    assert_int_equal(ash_file_replace(path, "", 0, NULL), 0);
    return add_place(from, path);
}

static struct ash_model *open_here(const char *path)
{
    struct ash_model *model = NULL;
    struct ash_err err = {0};

    if (ash_model_open(path, &model, &err) < 0) fail_msg("%s", err.text);
    return model;
}

static void test_gguf_bits(void **state)
{
    static const char *const names[] = {"gguf/llama-f16.gguf", "gguf/llama-q8_0.gguf", "gguf/llama-q4_k_m.gguf"};
    char from[GOLDEN_PATH_BYTES], path[600];

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(names); i++) {
        mirror_gguf(golden_path(names[i], from), strchr(names[i], '/') + 1, path);
        for (const char *const *backend = ash_exec_backends(); *backend != NULL; backend++)
            check_same_bits(open_here(from), path, *backend, true);
    }
}

/* Opening reads what says where tensors are, vectors, and the first rows where those are looked at: little. */
static void test_gguf_ranges(void **state)
{
    static const enum ash_dtype dtypes[] = {ASH_Q8_W, ASH_Q4_0};
    char folder[600], from[600], path[600];
    struct ash_model *whole;

    (void)state;
    snprintf(folder, sizeof(folder), "%s/large", scratch);
    if (!ash_path_exists(folder)) save_large(folder);
    whole = open_here(folder);
    for (size_t i = 0; i < ASH_COUNT(dtypes); i++) {
        struct ash_model *model = NULL;
        struct ash_err err = {0};
        struct place *place;
        struct stat info;
        char name[64];

        snprintf(from, sizeof(from), "%s/large-%d.gguf", scratch, (int)dtypes[i]);
        if (ash_model_save_gguf(whole, NULL, from, dtypes[i], NULL, NULL, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(stat(from, &info), 0);
        snprintf(name, sizeof(name), "remote-%d.gguf", (int)dtypes[i]);
        place = mirror_gguf(from, name, path);
        if (ash_model_open_lazy(path, &model, &err) < 0) fail_msg("%s", err.text);
        if (atomic_load(&place->read_bytes) > ((size_t)1 << 20) + (size_t)info.st_size / 8)
            fail_msg("%zu of %lld bytes were read to open it", atomic_load(&place->read_bytes),
                     (long long)info.st_size);
        ash_model_close(model);
        check_same_bits(open_here(from), path, NULL, true);
        atomic_store(&place->reads, 0);
        atomic_store(&place->fails_after, 1); /* the metadata come, no more */
        assert_int_equal(ash_model_open(path, &model, &err), -EIO);
        assert_non_null(strstr(err.text, "the place is gone"));
    }
    ash_model_close(whole);
}

static void put(FILE *file, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        fputc((int)(value >> 8 * i & 255), file);
}

/* Metadata of which the first request brings a part: values behind it are read, or why not is said. */
static void test_gguf_metadata(void **state)
{
    enum { LONG = 3 << 20 };
    char from[600], path[600];
    struct ash_gguf *file = NULL;
    struct ash_err err = {0};
    struct place *place;
    const char *text = NULL;
    FILE *out;

    (void)state;
    snprintf(from, sizeof(from), "%s/long.gguf", scratch);
    out = fopen(from, "wb");
    assert_non_null(out);
    put(out, 0x46554747, 4);
    put(out, 3, 4);
    put(out, 0, 8); /* tensors, values, a key, an array of so many bytes */
    put(out, 2, 8);
    put(out, 1, 8);
    put(out, 'a', 1);
    put(out, ASH_GGUF_ARRAY, 4);
    put(out, ASH_GGUF_U8, 4);
    put(out, LONG, 8);
    for (size_t i = 0; i < LONG; i++)
        fputc((int)(i & 127), out);
    put(out, 1, 8); /* a key, a string */
    put(out, 'b', 1);
    put(out, ASH_GGUF_STRING, 4);
    put(out, 4, 8);
    fputs("last", out);
    assert_int_equal(fclose(out), 0);
    place = mirror_gguf(from, "long-remote.gguf", path);
    if (ash_gguf_open(path, &file, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_gguf_string(file, "b", &text, &err), 1);
    assert_string_equal(text, "last");
    ash_gguf_close(file);
    atomic_store(&place->reads, 0);
    atomic_store(&place->fails_after, 1);
    assert_int_equal(ash_gguf_open(path, &file, &err), -EIO);
    assert_non_null(strstr(err.text, "the place is gone"));
}

/* ---- what fails -------------------------------------------------------------------------------------------------- */

static void test_failures(void **state)
{
    struct ash_model *model = NULL;
    struct ash_exec exec = {0};
    struct ash_err err = {0};
    struct place *place;
    char from[600], dir[600];

    (void)state;
    snprintf(from, sizeof(from), "%s/large", scratch);
    snprintf(dir, sizeof(dir), "%s/large-gone", scratch);
    if (!ash_path_exists(from)) save_large(from);
    place = mirror(from, dir);
    atomic_store(&place->fails_after, 1); /* the header comes, no more */
    assert_int_equal(ash_model_open(dir, &model, &err), -EIO);
    assert_non_null(strstr(err.text, "the place is gone"));
    if (ash_exec_init(&exec, NULL, 2, &err) < 0) fail_msg("%s", err.text);
    atomic_store(&place->fails_after, 0);
    assert_int_equal(ash_model_open_lazy(dir, &model, &err), 0);
    atomic_store(&place->fails_after, 1);
    ash_model_round_bf16(model, true);
    if (exec.ops->matrix->pack != NULL) {
        assert_int_equal(ash_model_prefetch(model, &exec, &err), 0);
        assert_int_equal(ash_model_pack(model, &exec, &err), -EIO);
        assert_non_null(strstr(err.text, "the place is gone"));
    }
    ash_model_close(model);
    ash_exec_fini(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),        cmocka_unit_test(test_slices),        cmocka_unit_test(test_gguf_bits),
        cmocka_unit_test(test_gguf_ranges), cmocka_unit_test(test_gguf_metadata), cmocka_unit_test(test_failures),
    };
    int failed = cmocka_run_group_tests(tests, make_scratch, remove_scratch);

    while (places != NULL) {
        struct place *next = places->next;

        free(places);
        places = next;
    }
    return failed;
}
