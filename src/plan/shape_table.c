/* Models by name or by folder. Well-known sizes are in shape_list.h; a folder of one's own goes through its
 * config.json. */
#include "plan/shape.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/spelling.h"
#include "base/str.h"
#include "model/config.h"
#include "model/files/open.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SUGGESTED 4 /* names in the message about one that is not known */

static const struct ash_shape table[] = {
#include "plan/shape_list.h"
};

size_t ash_shape_count(void)
{
    return COUNT(table);
}

const struct ash_shape *ash_shape_at(size_t index)
{
    return index < COUNT(table) ? &table[index] : NULL;
}

/* Letters and digits only, lower case: "Llama-3.1_8B" is "llama318b". */
static void plain(const char *name, char *buf, size_t buf_bytes)
{
    size_t used = 0;

    for (; *name != '\0' && used + 1 < buf_bytes; name++)
        if (isalnum((unsigned char)*name)) buf[used++] = (char)tolower((unsigned char)*name);
    buf[used] = '\0';
}

static void from_config(const struct ash_model_config *config, struct ash_shape *shape)
{
    shape->layers = (double)config->layers;
    shape->hidden = (double)config->hidden;
    shape->heads = (double)config->heads;
    shape->kv_heads = (double)config->kv_heads;
    shape->head_dim = (double)config->head_dim;
    shape->ffn = (double)config->ffn;
    shape->gated = ash_mlp_is_gated(config->form.mlp);
    shape->vocab = (double)config->vocab;
    shape->tied = config->tied;
    shape->context = (double)config->max_positions;
    if (config->rope.kind == ASH_ROPE_NONE) shape->positions = (double)config->max_positions;
    for (size_t i = 0; i < config->layers; i++) {
        shape->sparse_layers += config->sparse[i] != 0;
        shape->window_layers += config->window[i] != 0;
        if (config->window[i] != 0) shape->window = config->window[i];
    }
    shape->dense_layers = shape->layers - shape->sparse_layers;
    if (shape->sparse_layers > 0) {
        shape->experts = (double)config->expert.experts;
        shape->choices = (double)config->expert.choices;
        shape->groups = (double)config->expert.groups;
        shape->group_choices = (double)config->expert.top_groups;
        shape->expert_ffn = (double)config->expert.ffn;
        shape->shared_ffn = (double)config->expert.shared_ffn;
    }
    if (config->attn == ASH_ATTN_LATENT) {
        shape->q_rank = (double)config->q_rank;
        shape->kv_rank = (double)config->kv_rank;
        shape->rope_dim = (double)config->rope_dim;
        shape->nope_dim = (double)config->nope_dim;
        shape->v_dim = (double)config->v_dim;
    }
}

/* Of a model folder or a GGUF file. */
static int from_path(const char *path, struct ash_shape *shape_out, struct ash_err *err)
{
    struct ash_model_config *config = calloc(1, sizeof(*config)); /* large: an entry per layer */
    struct ash_shape shape = {0};
    const char *name = strrchr(path, '/');
    int rc = config == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : ash_model_config_load(path, config, err);

    if (rc == 0) {
        snprintf(shape.name, sizeof(shape.name), "%s", name != NULL && name[1] != '\0' ? name + 1 : path);
        from_config(config, &shape);
        ash_model_config_fini(config);
        rc = ash_shape_complete(&shape, err);
    }
    free(config);
    if (rc == 0) *shape_out = shape;
    return rc;
}

/* The names that are near to one that is not known, nearest first; perhaps none. */
static void add_nearest(const char *name, struct ash_str *names)
{
    bool taken[COUNT(table)] = {false};

    for (int n = 0; n < SUGGESTED; n++) {
        size_t best = 0, least = SIZE_MAX;

        for (size_t i = 0; i < COUNT(table); i++) {
            size_t distance = ash_spelling_nearness(name, table[i].name);

            if (taken[i] || distance >= least) continue;
            best = i;
            least = distance;
        }
        if (least == SIZE_MAX) return;
        ash_assert(!taken[best]); /* each is suggested once */
        taken[best] = true;
        ash_str_addf(names, "%s%s", n > 0 ? ", " : "; the nearest are ", table[best].name);
    }
}

static int unknown(const char *name, struct ash_err *err)
{
    struct ash_str names = {0};

    add_nearest(name, &names);
    ash_err_set(err, -ENOENT,
                "'%.80s' is neither a model folder, a GGUF file nor a well-known name%s (all: ashlar plan models)",
                name, names.data != NULL ? names.data : "");
    ash_str_fini(&names);
    return -ENOENT;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Words that say how a model was tuned, packed or dated, not how large it is. */
static const char *const decorations[] = {
    "meta",      "nvidia", "hf",   "instruct", "chat", "base",  "it",    "thinking", "preview",
    "pretrain",  "sft",    "lora", "fp8",      "fp4",  "nvfp4", "mxfp4", "mxfp8",    "bf16",
    "fp16",      "int4",   "int8", "awq",      "gptq", "w4a16", "w8a8",  "dynamic",  "text",
    "quantized", "dense",  "moe",  "128e",     "16e",  "17b",   "latest"};

/* Other names of the same sizes, as plain() writes them. */
static const struct {
    const char *plain, *name;
} aliases[] = {
    {"deepseekv31", "deepseek-v3"},
    {"deepseekv32", "deepseek-v3"},
    {"deepseekv3671b", "deepseek-v3"},
    {"deepseekr1671b", "deepseek-r1"},
    {"deepseek671b", "deepseek-v3"},
    {"deepseekv2236b", "deepseek-v2"},
    {"deepseekv216b", "deepseek-v2-lite"},
    {"qwen3235b", "qwen3-235b-a22b"},
    {"qwen330b", "qwen3-30b-a3b"},
    {"qwen3coder480b", "qwen3-coder-480b-a35b"},
    {"qwq32b", "qwen2.5-32b"},
    {"grok1", "grok-1-314b"},
    {"grok", "grok-1-314b"},
    {"gptj", "gpt-j-6b"},
    {"gpt175b", "gpt3-175b"},
    {"gpt3", "gpt3-175b"},
    {"bloom", "bloom-176b"},
    {"llama33b", "llama-30b"},
    {"llama1b", "llama-3.2-1b"},
    {"llama3b", "llama-3.2-3b"},
    {"llama8b", "llama-3-8b"},
    {"llama70b", "llama-3-70b"},
    {"llama405b", "llama-3.1-405b"},
    {"llama3405b", "llama-3.1-405b"},
    {"llama4maverick400b", "llama-4-maverick"},
    {"llama4scout109b", "llama-4-scout"},
    {"llama4109b", "llama-4-scout"},
    {"llama4400b", "llama-4-maverick"},
    {"codellama34", "codellama-34b"},
    {"llama234b", "codellama-34b"},
    {"mixtral8x7", "mixtral-8x7b"},
    {"mixtral8x22", "mixtral-8x22b"},
    {"mixtral", "mixtral-8x7b"},
    {"mistrallarge", "mistral-large-123b"},
    {"mistrallarge2", "mistral-large-123b"},
    {"kimik21t", "kimi-k2"},
    {"kimik25", "kimi-k2"},
    {"glm46", "glm-4.5"},
    {"glm45355b", "glm-4.5"},
    {"gptoss", "gpt-oss-120b"},
    {"nemotron340b", "nemotron-4-340b"},
    {"nemotron15b", "nemotron-4-15b"},
    {"nemotron3nano", "nemotron-3-nano-30b-a3b"},
    {"nemotron3nano30b", "nemotron-3-nano-30b-a3b"},
    {"nemotron35lightning30ba3b", "nemotron-3-nano-30b-a3b"},
    {"nemotronh", "nemotron-h-56b"},
    {"minimaxm21", "minimax-m2"},
    {"commandrplus", "command-r-plus-104b"},
};

static bool is_decoration(const char *word, size_t length)
{
    bool digits = length >= 4; /* a date */

    for (size_t i = 0; i < length; i++)
        digits = digits && isdigit((unsigned char)word[i]);
    for (size_t i = 0; i < COUNT(decorations) && !digits; i++)
        if (strlen(decorations[i]) == length && strncasecmp(decorations[i], word, length) == 0) return true;
    /* "v0.1", but not the "V3" of DeepSeek */
    return digits || (length == 2 && tolower((unsigned char)word[0]) == 'v' && (word[1] == '0' || word[1] == '1'));
}

/* Letters and digits that word begins with; *number_out: they are digits alone. */
static size_t word_length(const char *word, bool *number_out)
{
    size_t length = 0;

    *number_out = true;
    while (isalnum((unsigned char)word[length])) {
        *number_out = *number_out && isdigit((unsigned char)word[length]);
        length++;
    }
    return length;
}

/* "v0" or "v1", whose next number belongs to it. */
static bool is_version(const char *word, size_t length)
{
    return length == 2 && tolower((unsigned char)word[0]) == 'v' && is_decoration(word, length);
}

/* The same as plain() of a name as people write it: without its owner ("meta-llama/") and without decorations. */
static void plain_like(const char *name, char *buf, size_t buf_bytes)
{
    const char *slash = strrchr(name, '/'), *word = slash != NULL && slash[1] != '\0' ? slash + 1 : name;
    bool after_version = false;
    size_t used = 0;

    while (*word != '\0') {
        bool number;
        size_t length = word_length(word, &number);

        if (length == 0) {
            word++;
            continue;
        }
        if (!(after_version && number) && !is_decoration(word, length))
            for (size_t i = 0; i < length && used + 1 < buf_bytes; i++)
                buf[used++] = (char)tolower((unsigned char)word[i]);
        after_version = is_version(word, length);
        word += length;
    }
    buf[used] = '\0';
}

static const struct ash_shape *find_plain(const char *wanted)
{
    char known[64];

    for (size_t i = 0; i < COUNT(table); i++) {
        plain(table[i].name, known, sizeof(known));
        if (strcmp(wanted, known) == 0) return &table[i];
    }
    for (size_t i = 0; i < COUNT(aliases); i++)
        if (strcmp(wanted, aliases[i].plain) == 0) {
            plain(aliases[i].name, known, sizeof(known));
            return find_plain(known);
        }
    return NULL;
}

const struct ash_shape *ash_shape_named(const char *name)
{
    const struct ash_shape *shape;
    char wanted[64];

    plain(name, wanted, sizeof(wanted));
    shape = find_plain(wanted);
    if (shape != NULL) return shape;
    plain_like(name, wanted, sizeof(wanted));
    return find_plain(wanted);
}

int ash_shape_find(const char *name, struct ash_shape *shape_out, struct ash_err *err)
{
    const struct ash_shape *known;
    struct stat info;

    if (stat(name, &info) == 0) return from_path(name, shape_out, err);
    known = ash_shape_named(name);
    if (known == NULL) return unknown(name, err);
    *shape_out = *known;
    shape_out->context = ash_shape_context(known->name);
    return 0;
}
