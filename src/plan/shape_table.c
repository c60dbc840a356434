/* Models by name or by folder. Well-known sizes are in shape_list.h; a folder of one's own goes through its config.json. */
#include "plan/shape.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"
#include "model/config.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

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
    shape->gated = config->mlp == ASH_MLP_GATED;
    shape->vocab = (double)config->vocab;
    shape->tied = config->tied;
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

static int from_folder(const char *dir, struct ash_shape *shape_out, struct ash_err *err)
{
    struct ash_model_config *config = calloc(1, sizeof(*config)); /* large: an entry per layer */
    struct ash_shape shape = {0};
    const char *name = strrchr(dir, '/');
    int rc = config == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : ash_model_config_load(dir, config, err);

    if (rc == 0) {
        snprintf(shape.name, sizeof(shape.name), "%s", name != NULL && name[1] != '\0' ? name + 1 : dir);
        from_config(config, &shape);
        ash_model_config_fini(config);
        rc = ash_shape_complete(&shape, err);
    }
    free(config);
    if (rc == 0) *shape_out = shape;
    return rc;
}

static int unknown(const char *name, struct ash_err *err)
{
    struct ash_str names = {0};

    for (size_t i = 0; i < COUNT(table); i += 6) /* a selection: all of them would not fit into a sentence */
        ash_str_addf(&names, "%s%s", i > 0 ? ", " : "", table[i].name);
    ash_err_set(err, -ENOENT,
                "'%.80s' is neither a model folder nor a well-known name such as %s (all: ashlar plan models)", name,
                names.data != NULL ? names.data : "");
    ash_str_fini(&names);
    return -ENOENT;
}

int ash_shape_find(const char *name, struct ash_shape *shape_out, struct ash_err *err)
{
    char wanted[64], known[64];
    struct stat info;

    if (stat(name, &info) == 0 && S_ISDIR(info.st_mode)) return from_folder(name, shape_out, err);
    plain(name, wanted, sizeof(wanted));
    for (size_t i = 0; i < COUNT(table); i++) {
        plain(table[i].name, known, sizeof(known));
        if (strcmp(wanted, known) != 0) continue;
        *shape_out = table[i];
        return 0;
    }
    return unknown(name, err);
}
