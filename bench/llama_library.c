/* llama.cpp's own quantiser, from the libraries that npm's node-llama-cpp brings: quantised files, and values of
 * blocks, from another maker.
 *   llama_library FOLDER quantise FROM.gguf TO.gguf NUMBER   NUMBER is llama.cpp's of a kind of file: 15 is Q4_K_M
 *   llama_library FOLDER values TO.safetensors               random blocks of every type, and their values as floats
 *   llama_library FOLDER logits MODEL.gguf IDS LOGITS        logits (float32) of token ids (int32) */
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/cores.h"
#include "base/rng.h"
#include "storage/safetensors/safetensors.h"

#define LIBRARIES 3
#define BLOCKS 4 /* of each type */
#define PARAMS_BYTES 1024
#define BYTES_MAX 1024  /* of the blocks of a type */
#define VALUES_MAX 1024 /* of these blocks */
#define IDS_MAX 512

/* What the libraries call a type, and where a block has its one or two scales, which must be finite. */
static const struct kind {
    enum ash_dtype dtype;
    const char *function;
    size_t scale, scales;
} kinds[] = {
    {ASH_Q8_0, "dequantize_row_q8_0", 0, 1},     {ASH_Q4_0, "dequantize_row_q4_0", 0, 1},
    {ASH_Q4_1, "dequantize_row_q4_1", 0, 2},     {ASH_Q5_0, "dequantize_row_q5_0", 0, 1},
    {ASH_Q5_1, "dequantize_row_q5_1", 0, 2},     {ASH_Q2_K, "dequantize_row_q2_K", 80, 2},
    {ASH_Q3_K, "dequantize_row_q3_K", 108, 1},   {ASH_Q4_K, "dequantize_row_q4_K", 0, 2},
    {ASH_Q5_K, "dequantize_row_q5_K", 0, 2},     {ASH_Q6_K, "dequantize_row_q6_K", 208, 1},
    {ASH_IQ4_NL, "dequantize_row_iq4_nl", 0, 1}, {ASH_IQ4_XS, "dequantize_row_iq4_xs", 0, 1},
    {ASH_MXFP4, "dequantize_row_mxfp4", 0, 0}, /* every exponent is finite */
};

/* The options of the quantiser; versions add more at the end. */
struct quantise_params {
    int32_t threads, file_type;
    char rest[PARAMS_BYTES];
};

typedef struct quantise_params (*params_fn)(void);
typedef uint32_t (*quantise_fn)(const char *from, const char *to, const struct quantise_params *params);
typedef void (*init_fn)(void);
typedef void (*values_fn)(const void *blocks, float *values, int64_t count);

/* Open the libraries, each for the next. Returns the last one's handle, or NULL. */
static void *open_libraries(const char *folder, void *handles[LIBRARIES])
{
    static const char *const names[LIBRARIES] = {"libggml-base.*", "libggml.*", "libllama.*"};

    for (size_t i = 0; i < LIBRARIES; i++) {
        char pattern[4096];
        glob_t found = {0};

        snprintf(pattern, sizeof(pattern), "%s/%s", folder, names[i]);
        if (glob(pattern, 0, NULL, &found) == 0) handles[i] = dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_GLOBAL);
        globfree(&found);
        if (handles[i] != NULL) continue;
        fprintf(stderr, "llama_library: cannot open %s: %s\n", pattern, dlerror());
        return NULL;
    }
    return handles[LIBRARIES - 1];
}

/* A function of a library; POSIX lets a pointer to an object hold it. */
static int find_function(void *library, const char *name, void *function_out)
{
    void *found = dlsym(library, name);

    if (found == NULL) {
        fprintf(stderr, "llama_library: there is no %s\n", name);
        return -ENOENT;
    }
    memcpy(function_out, &found, sizeof(found));
    return 0;
}

static int quantise(void *library, const char *from, const char *to, int file_type)
{
    struct quantise_params params;
    params_fn get_params;
    quantise_fn run;
    init_fn init;

    if (find_function(library, "llama_model_quantize_default_params", &get_params) < 0 ||
        find_function(library, "llama_model_quantize", &run) < 0 ||
        find_function(library, "llama_backend_init", &init) < 0)
        return -ENOENT;
    init();
    params = get_params();
    params.threads = ash_cores_usable();
    params.file_type = file_type;
    return run(from, to, &params) == 0 ? 0 : -EIO;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

struct made {
    uint8_t blocks[sizeof(kinds) / sizeof(kinds[0])][BYTES_MAX];
    float values[sizeof(kinds) / sizeof(kinds[0])][VALUES_MAX];
};

/* Random bytes, with scales of both signs and many sizes. */
static void draw_blocks(const struct kind *kind, size_t seed, uint8_t *blocks)
{
    size_t bytes = ash_dtype_bytes(kind->dtype);

    for (size_t i = 0; i < BLOCKS * bytes; i++)
        blocks[i] = (uint8_t)ash_rng_below(seed, 1, i, 256);
    for (size_t i = 0; i < BLOCKS * kind->scales; i++) { /* an exponent of 31 would be infinite or no number */
        uint8_t *high = blocks + i / kind->scales * bytes + kind->scale + i % kind->scales * 2 + 1;

        if ((*high & 0x7c) == 0x7c) *high ^= 0x40;
    }
}

static int write_values(void *library, const char *path)
{
    static struct made made;
    struct ash_tensor_spec specs[2 * ASH_COUNT(kinds)];
    char names[2 * ASH_COUNT(kinds)][32];
    struct ash_err err = {0};
    int rc;

    for (size_t i = 0; i < ASH_COUNT(kinds); i++) {
        size_t count = BLOCKS * ash_dtype_block(kinds[i].dtype);
        values_fn to_values;

        if (find_function(library, kinds[i].function, &to_values) < 0) return -ENOENT;
        draw_blocks(&kinds[i], i + 1, made.blocks[i]);
        to_values(made.blocks[i], made.values[i], (int64_t)count);
        snprintf(names[2 * i], sizeof(names[0]), "%s.blocks", ash_dtype_name(kinds[i].dtype));
        snprintf(names[2 * i + 1], sizeof(names[0]), "%s.values", ash_dtype_name(kinds[i].dtype));
        specs[2 * i] = (struct ash_tensor_spec){.name = names[2 * i],
                                                .dtype = ASH_U8,
                                                .dim_count = 1,
                                                .dims = {ash_dtype_size(kinds[i].dtype, count)},
                                                .data = made.blocks[i]};
        specs[2 * i + 1] = (struct ash_tensor_spec){
            .name = names[2 * i + 1], .dtype = ASH_F32, .dim_count = 1, .dims = {count}, .data = made.values[i]};
    }
    rc = ash_safetensors_write(path, specs, ASH_COUNT(specs), NULL, 0, NULL, NULL, &err);
    if (rc < 0) fprintf(stderr, "llama_library: %s\n", err.text);
    return rc;
}

/* ---- logits ------------------------------------------------------------------------------------------------------ */

/* llama.cpp's structs, as far as a call needs them; versions add more at the end, where defaults are. */
struct any_params {
    char bytes[PARAMS_BYTES];
};

struct batch {
    int32_t count;
    int32_t *tokens;
    float *embeddings;
    int32_t *positions, *sequence_counts;
    int32_t **sequences;
    int8_t *gives_logits;
};

struct llama {
    init_fn init;
    void (*load_backends)(const char *folder);
    struct any_params (*model_params)(void);
    struct any_params (*context_params)(void);
    void *(*load)(const char *path, struct any_params params);
    void *(*open)(void *model, struct any_params params);
    const void *(*vocab)(const void *model);
    int32_t (*vocab_size)(const void *vocab);
    struct batch (*new_batch)(int32_t tokens, int32_t embeddings, int32_t sequences);
    void (*set_threads)(void *context, int32_t threads, int32_t batch_threads);
    int32_t (*decode)(void *context, struct batch batch);
    const float *(*logits)(void *context, int32_t index);
};

static int find_llama(void *handles[LIBRARIES], struct llama *llama)
{
    const struct {
        int library;
        const char *name;
        void *function;
    } functions[] = {
        {2, "llama_backend_init", &llama->init},
        {1, "ggml_backend_load_all_from_path", &llama->load_backends},
        {2, "llama_model_default_params", &llama->model_params},
        {2, "llama_context_default_params", &llama->context_params},
        {2, "llama_model_load_from_file", &llama->load},
        {2, "llama_init_from_model", &llama->open},
        {2, "llama_model_get_vocab", &llama->vocab},
        {2, "llama_vocab_n_tokens", &llama->vocab_size},
        {2, "llama_batch_init", &llama->new_batch},
        {2, "llama_set_n_threads", &llama->set_threads},
        {2, "llama_decode", &llama->decode},
        {2, "llama_get_logits_ith", &llama->logits},
    };

    for (size_t i = 0; i < ASH_COUNT(functions); i++)
        if (find_function(handles[functions[i].library], functions[i].name, functions[i].function) < 0) return -ENOENT;
    return 0;
}

/* One text in one batch, all of whose logits are wanted. */
static int decode(const struct llama *llama, void *context, const int32_t *ids, int32_t count)
{
    struct batch batch = llama->new_batch(count, 0, 1);

    for (int32_t i = 0; i < count; i++) {
        batch.tokens[i] = ids[i];
        batch.positions[i] = i;
        batch.sequence_counts[i] = 1;
        batch.sequences[i][0] = 0;
        batch.gives_logits[i] = 1;
    }
    batch.count = count;
    return llama->decode(context, batch);
}

/* The logits of ids (int32) in a file, as float32 into another. */
static int write_logits(void *handles[LIBRARIES], const char *folder, char **args)
{
    static int32_t ids[IDS_MAX];
    struct llama llama;
    FILE *in = fopen(args[1], "rb"), *out = fopen(args[2], "wb");
    int32_t count = in != NULL ? (int32_t)fread(ids, sizeof(*ids), IDS_MAX, in) : 0;
    void *model, *context;
    int rc = -EIO;

    if (in == NULL || out == NULL || find_llama(handles, &llama) < 0) goto end;
    llama.load_backends(folder);
    llama.init();
    model = llama.load(args[0], llama.model_params());
    context = model != NULL ? llama.open(model, llama.context_params()) : NULL;
    if (context != NULL) llama.set_threads(context, 1, 1);
    if (context == NULL || decode(&llama, context, ids, count) != 0) goto end;
    rc = 0;
    for (int32_t i = 0; i < count; i++)
        fwrite(llama.logits(context, i), sizeof(float), (size_t)llama.vocab_size(llama.vocab(model)), out);
end:
    if (in != NULL) fclose(in);
    if (out != NULL && fclose(out) != 0) rc = -EIO;
    return rc;
}

int main(int argc, char **argv)
{
    void *handles[LIBRARIES] = {0}, *library;
    int rc;

    if (!(argc == 6 && (strcmp(argv[2], "quantise") == 0 || strcmp(argv[2], "logits") == 0)) &&
        !(argc == 4 && strcmp(argv[2], "values") == 0)) {
        fprintf(stderr, "usage: llama_library FOLDER quantise FROM.gguf TO.gguf NUMBER\n"
                        "       llama_library FOLDER values TO.safetensors\n"
                        "       llama_library FOLDER logits MODEL.gguf IDS LOGITS\n");
        return 2;
    }
    library = open_libraries(argv[1], handles);
    if (library == NULL) return 1;
    if (strcmp(argv[2], "logits") == 0) return write_logits(handles, argv[1], argv + 3) < 0;
    rc = argc == 4 ? write_values(library, argv[3]) : quantise(library, argv[3], argv[4], atoi(argv[5]));
    return rc < 0;
}
