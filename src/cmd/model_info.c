/* ashlar model info: facts of a model before using it. They are gathered into one JSON object, which is printed as it
 * is (--json) or as lines of text. */
#include "cmd/model_priv.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/table.h"
#include "cmd/cmd.h"
#include "cmd/units.h"
#include "model/family.h"
#include "model/lora.h"
#include "model/files/open.h"
#include "model/model.h"
#include "model/pass/cache.h"
#include "model/quantised/quantised.h"
#include "serve/defaults.h"
#include "storage/gguf/gguf.h"
#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

struct info_flags {
    bool json, tensors;
};

#define FIELD(name) offsetof(struct info_flags, name)

static const struct ash_opt info_opts[] = {
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object", 0, 0, NULL},
    {"tensors", ASH_OPT_BOOL, FIELD(tensors), NULL, "list every tensor too", 0, 0, NULL},
};

static const struct ash_opt_table info_table = {
    .section = "", .help = "flags", .opts = info_opts, .count = ASH_COUNT(info_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar model info MODEL [flags]",
    .about = "Says what a Hugging Face folder or GGUF file holds: family, sizes, precision, memory per token,\n"
             "tokenizer, chat template, end tokens and files. Every tensor's presence and shape is checked on\n"
             "the way; the weights themselves are not read.",
    .examples = "  ashlar model info stories\n  ashlar model info stories --tensors --json",
};

/* ---- facts ------------------------------------------------------------------------------------------------------- */

/* Of a sparse layer's experts a token visits only some: the share of their weights that counts as active. */
static size_t active_weights(const struct ash_model *model)
{
    const struct ash_expert_config *expert = &ash_model_get_config(model)->expert;
    size_t routed = 0;

    if (expert->experts == 0) return ash_model_weight_count(model);
    for (size_t i = 0; i < ash_model_param_count(model); i++)
        if (strstr(ash_model_param(model, i)->name, ".experts.") != NULL) routed += ash_model_param(model, i)->count;
    return ash_model_weight_count(model) - routed + routed / expert->experts * expert->choices;
}

/* {"F32": elements, ...} */
static json_t *dtype_facts(const struct ash_model *model)
{
    size_t counts[ASH_DTYPE_COUNT] = {0};
    json_t *json = json_object();

    for (size_t i = 0; i < ash_model_param_count(model); i++)
        counts[ash_model_param(model, i)->dtype] += ash_model_param(model, i)->count;
    for (int i = 0; i < ASH_DTYPE_COUNT; i++)
        if (counts[i] > 0)
            json_object_set_new(json, ash_dtype_name((enum ash_dtype)i), json_integer((json_int_t)counts[i]));
    return json;
}

static json_t *size_json(size_t value)
{
    return json_integer((json_int_t)value);
}

static const char *const state_facts[] = {"state_heads", "state_size", "attention_layers"};

static void add_architecture(json_t *facts, const struct ash_model *model)
{
    const struct ash_model_config *config = ash_model_get_config(model);
    const size_t states[] = {config->state.heads, config->state.size,
                             ash_config_count_attending(config, config->layers)};

    json_object_set_new(facts, "family", json_string(config->family->type));
    json_object_set_new(facts, "layers", size_json(config->layers));
    json_object_set_new(facts, "hidden", size_json(config->hidden));
    json_object_set_new(facts, "heads", size_json(config->heads));
    json_object_set_new(facts, "kv_heads", size_json(config->kv_heads));
    json_object_set_new(facts, "head_dim", size_json(config->head_dim));
    json_object_set_new(facts, "ffn", size_json(config->ffn));
    for (size_t i = 0; config->state.heads > 0 && i < ASH_COUNT(states); i++)
        json_object_set_new(facts, state_facts[i], size_json(states[i]));
    json_object_set_new(facts, "vocab", size_json(config->vocab));
    json_object_set_new(facts, "context_tokens", size_json(config->max_positions));
    json_object_set_new(facts, "tied_embeddings", json_boolean(config->tied));
    if (config->window[0] != 0) json_object_set_new(facts, "window_tokens", size_json(config->window[0]));
    if (config->attn == ASH_ATTN_LATENT) json_object_set_new(facts, "latent_rank", size_json(config->kv_rank));
    if (config->expert.experts == 0) return;
    json_object_set_new(facts, "experts", size_json(config->expert.experts));
    json_object_set_new(facts, "experts_per_token", size_json(config->expert.choices));
    json_object_set_new(facts, "expert_ffn", size_json(config->expert.ffn));
    json_object_set_new(facts, "shared_expert_ffn", size_json(config->expert.shared_ffn));
}

/* Weights that are published quantised are computed with as floats: what that takes. */
static void add_quantised(json_t *facts, const struct ash_model *model)
{
    const struct ash_quantised *quantised = ash_model_quantised(model);

    if (quantised == NULL) return;
    json_object_set_new(facts, "quantised",
                        json_pack("{s:s, s:s, s:o, s:o, s:o}", "method", ash_quantised_method(quantised), "dtype",
                                  ash_dtype_name(ash_quantised_dtype(quantised)), "tensors",
                                  size_json(ash_quantised_count(quantised)), "stored_bytes",
                                  size_json(ash_quantised_stored_bytes(quantised)), "memory_bytes",
                                  size_json(ash_quantised_float_bytes(quantised))));
}

static void add_weights(json_t *facts, struct ash_model *model)
{
    const struct ash_model_config *config = ash_model_get_config(model);

    if (config->lora != NULL)
        json_object_set_new(
            facts, "adapters",
            json_pack("{s:s, s:o}", "base", config->lora->base_dir, "modules", size_json(config->lora->count)));
    json_object_set_new(facts, "parameters", size_json(ash_model_weight_count(model)));
    json_object_set_new(facts, "active_parameters", size_json(active_weights(model)));
    json_object_set_new(facts, "dtypes", dtype_facts(model));
    add_quantised(facts, model);
    json_object_set_new(facts, "cache_bytes_per_token", size_json(ash_cache_token_bytes(model)));
    ash_model_round_bf16(model, true);
    json_object_set_new(facts, "cache_bytes_per_token_bf16", size_json(ash_cache_token_bytes(model)));
    ash_model_round_bf16(model, false);
    if (config->attn == ASH_ATTN_LATENT)
        json_object_set_new(facts, "latent_cache_bytes_per_token_bf16",
                            size_json(config->layers * (config->kv_rank + config->rope_dim) * sizeof(uint16_t)));
}

/* The tokens that end an answer, with their text if tokenizer (may be NULL) has them. */
static json_t *end_tokens(const struct ash_defaults *defaults, const struct ash_tokenizer *tokenizer)
{
    json_t *list = json_array();

    for (size_t i = 0; i < defaults->eos_count; i++) {
        const char *text = tokenizer != NULL ? ash_tokenizer_content(tokenizer, defaults->eos[i]) : NULL;
        json_t *entry = json_pack("{s:i}", "id", defaults->eos[i]);

        if (text != NULL) json_object_set_new(entry, "text", json_string(text));
        json_array_append_new(list, entry);
    }
    return list;
}

/* Vocabulary and end tokens. A model needs no tokenizer; a broken one is named with its reason. */
static int add_tokens(json_t *facts, const char *path, const struct ash_defaults *defaults, struct ash_err *err)
{
    struct ash_tokenizer *tokenizer = NULL;
    int rc = ash_tokenizer_open(path, &tokenizer, err);

    if (rc < 0 && rc != -ENOENT) return rc;
    json_object_set_new(facts, "tokenizer_tokens",
                        tokenizer != NULL ? size_json(ash_tokenizer_vocab_size(tokenizer)) : json_null());
    json_object_set_new(facts, "end_tokens", end_tokens(defaults, tokenizer));
    ash_tokenizer_close(tokenizer);
    return 0;
}

/* Whether there is a chat template; one that cannot be read counts, and `generate --chat` reports the error. */
static void add_chat_template(json_t *facts, const char *path)
{
    struct ash_str text = {0};
    struct ash_err err = {0};

    json_object_set_new(facts, "chat_template", json_boolean(ash_chat_template_source(path, &text, &err) != -ENOENT));
    ash_str_fini(&text);
}

/* Is entry of the folder listed? All are, but for the neighbours of a GGUF file that was named: lone is its name. */
static bool is_listed(const char *entry, const char *lone)
{
    return lone == NULL || strcmp(entry, lone) == 0;
}

/* {"config.json": bytes, ...}, regular files only, and their sum. lone: of this one only; NULL: of all. */
static int add_files(json_t *facts, const char *dir, const char *lone, struct ash_err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(dir, &entries, NULL, alphasort);
    json_t *files = json_object();
    json_int_t total = 0;

    for (int i = 0; i < count; i++) {
        struct stat info;
        char path[4096];

        if (is_listed(entries[i]->d_name, lone) && ash_path_join(path, sizeof(path), dir, entries[i]->d_name) == 0 &&
            stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
            json_object_set_new(files, entries[i]->d_name, json_integer((json_int_t)info.st_size));
            total += (json_int_t)info.st_size;
        }
        free(entries[i]);
    }
    free(entries);
    json_object_set_new(facts, "disk_bytes", json_integer(total));
    json_object_set_new(facts, "files", files);
    return count < 0 ? ash_err_set(err, -errno, "cannot list '%s': %s", dir, strerror(errno)) : 0;
}

static void add_tensors(json_t *facts, const struct ash_model *model)
{
    json_t *list = json_array();

    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        const struct ash_param *param = ash_model_param(model, i);
        json_t *shape = json_array();

        for (int d = 0; d < param->dim_count; d++)
            json_array_append_new(shape, size_json(param->dims[d]));
        json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", param->name, "dtype",
                                              ash_dtype_name(param->dtype), "shape", shape));
    }
    json_object_set_new(facts, "tensors", list);
}

/* Files beside the weights: tokenizer, chat template, end tokens, files. */
static int add_companions(json_t *facts, const char *path, const struct ash_model *model, struct ash_err *err)
{
    const char *slash = strrchr(path, '/'), *lone = slash != NULL ? slash + 1 : path;
    struct ash_defaults defaults;
    char home[4096];
    int rc = ash_model_home(path, home, sizeof(home));

    if (rc < 0) return ash_err_set(err, rc, "the path '%s' is too long", path);
    rc = ash_defaults_load(home, ash_model_get_config(model), &defaults, err);
    if (rc < 0) return rc;
    rc = add_tokens(facts, path, &defaults, err);
    if (rc < 0) return rc;
    add_chat_template(facts, path);
    return add_files(facts, home, ash_gguf_named(path) ? lone : NULL, err);
}

static int gather(const char *path, bool tensors, json_t **facts_out, struct ash_err *err)
{
    struct ash_model *model = NULL;
    json_t *facts;
    int rc = ash_model_open_lazy(path, &model, err);

    if (rc < 0) return rc;
    facts = json_object();
    json_object_set_new(facts, "path", json_string(path));
    add_architecture(facts, model);
    add_weights(facts, model);
    if (tensors) add_tensors(facts, model);
    rc = add_companions(facts, path, model, err);
    ash_model_close(model);
    if (rc < 0)
        json_decref(facts);
    else
        *facts_out = facts;
    return rc;
}

/* ---- lines for people -------------------------------------------------------------------------------------------- */

static size_t fact(const json_t *facts, const char *key)
{
    return (size_t)json_integer_value(json_object_get(facts, key));
}

static void print_count(const char *name, size_t value, const char *unit)
{
    char text[ASH_UNITS_BYTES];

    printf("  %-14s %s%s\n", name, ash_units_count(value, text, sizeof(text)), unit);
}

static void print_experts(const json_t *facts)
{
    if (json_object_get(facts, "experts") == NULL) return;
    printf("  %-14s %zu, %zu per token, %zu wide", "experts", fact(facts, "experts"), fact(facts, "experts_per_token"),
           fact(facts, "expert_ffn"));
    if (fact(facts, "shared_expert_ffn") > 0) printf("; shared ones %zu wide", fact(facts, "shared_expert_ffn"));
    printf("\n");
}

static void print_weights(const json_t *facts)
{
    char total[ASH_UNITS_BYTES], active[ASH_UNITS_BYTES];
    const json_t *adapters = json_object_get(facts, "adapters");
    const char *name, *comma = "";
    json_t *value;

    printf("  %-14s %s", "parameters", ash_units_count(fact(facts, "parameters"), total, sizeof(total)));
    if (json_object_get(facts, "experts") != NULL)
        printf(" (%s active)", ash_units_count(fact(facts, "active_parameters"), active, sizeof(active)));
    if (adapters != NULL)
        printf(", of adapters of %zu modules of %s", fact(adapters, "modules"),
               json_string_value(json_object_get(adapters, "base")));
    printf("\n  %-14s ", "precision");
    json_object_foreach(json_object_get(facts, "dtypes"), name, value) {
        printf("%s%s", comma, name);
        comma = ", ";
    }
    printf("\n");
}

static void print_quantised(const json_t *quantised)
{
    char stored[ASH_UNITS_BYTES], memory[ASH_UNITS_BYTES];

    if (quantised == NULL) return;
    printf("  %-14s %s, %zu tensors: %s in the files, %s in memory as %s\n", "quantised",
           json_string_value(json_object_get(quantised, "method")), fact(quantised, "tensors"),
           ash_units_bytes(fact(quantised, "stored_bytes"), stored, sizeof(stored)),
           ash_units_bytes(fact(quantised, "memory_bytes"), memory, sizeof(memory)),
           json_string_value(json_object_get(quantised, "dtype")));
}

static void print_files(const json_t *facts)
{
    char text[ASH_UNITS_BYTES];
    const char *name;
    json_t *value, *files = json_object_get(facts, "files");
    struct ash_table table = {.heads = "|>", .indent = 4};

    printf("  %-14s %s\n", "on disk", ash_units_bytes(fact(facts, "disk_bytes"), text, sizeof(text)));
    json_object_foreach(files, name, value)
        ash_table_row(&table, "%s|%s", name, ash_units_bytes((size_t)json_integer_value(value), text, sizeof(text)));
    ash_table_print(&table, stdout);
}

static void print_tensors(const json_t *facts)
{
    struct ash_table table = {.heads = "||", .indent = 4};
    size_t i;
    json_t *tensor;

    json_array_foreach(json_object_get(facts, "tensors"), i, tensor) {
        char *shape = json_dumps(json_object_get(tensor, "shape"), 0);

        if (i == 0) printf("  tensors\n");
        ash_table_row(&table, "%s|%s|%s", json_string_value(json_object_get(tensor, "name")),
                      json_string_value(json_object_get(tensor, "dtype")), shape != NULL ? shape : "");
        free(shape);
    }
    ash_table_print(&table, stdout);
}

static void print_cache(const json_t *facts)
{
    char wide[ASH_UNITS_BYTES], narrow[ASH_UNITS_BYTES];
    size_t latent = fact(facts, "latent_cache_bytes_per_token_bf16");

    printf("  %-14s %s per token (%s with bf16)\n", "cache",
           ash_units_bytes(fact(facts, "cache_bytes_per_token"), wide, sizeof(wide)),
           ash_units_bytes(fact(facts, "cache_bytes_per_token_bf16"), narrow, sizeof(narrow)));
    if (latent > 0)
        printf("  %-14s full keys and values are kept; the latent ones alone would take %s with bf16\n", "",
               ash_units_bytes(latent, wide, sizeof(wide)));
}

static void print_tokens(const json_t *facts)
{
    json_t *token, *ends = json_object_get(facts, "end_tokens");
    size_t i;

    if (json_is_null(json_object_get(facts, "tokenizer_tokens")))
        printf("  %-14s none\n", "tokenizer");
    else
        print_count("tokenizer", fact(facts, "tokenizer_tokens"), " tokens");
    printf("  %-14s ", "end tokens");
    json_array_foreach(ends, i, token) {
        const char *text = json_string_value(json_object_get(token, "text"));

        printf("%s%lld%s%s", i > 0 ? ", " : "", json_integer_value(json_object_get(token, "id")),
               text != NULL ? " " : "", text != NULL ? text : "");
    }
    printf("%s\n", json_array_size(ends) == 0 ? "none" : "");
    printf("  %-14s %s\n", "chat template", json_is_true(json_object_get(facts, "chat_template")) ? "yes" : "no");
}

/* Heads of recurrent states, if there are any, and of attention; and the feed-forward. */
static void print_heads(const json_t *facts)
{
    if (json_object_get(facts, "state_heads") != NULL) {
        printf("  %-14s %zu heads, %zu wide\n", "states", fact(facts, "state_heads"), fact(facts, "state_size"));
        if (fact(facts, "attention_layers") == 0) return;
        print_count("attention", fact(facts, "attention_layers"), " layers");
    }
    printf("  %-14s %zu, %zu for keys and values, %zu wide\n", "heads", fact(facts, "heads"), fact(facts, "kv_heads"),
           fact(facts, "head_dim"));
    print_count("feed-forward", fact(facts, "ffn"), "");
}

static void print_facts(const char *path, const json_t *facts)
{
    printf("%s: %s\n", path, json_string_value(json_object_get(facts, "family")));
    print_weights(facts);
    print_quantised(json_object_get(facts, "quantised"));
    print_count("layers", fact(facts, "layers"), "");
    print_count("hidden size", fact(facts, "hidden"), "");
    print_heads(facts);
    print_experts(facts);
    print_count("vocabulary", fact(facts, "vocab"),
                json_is_true(json_object_get(facts, "tied_embeddings")) ? " (tied)" : "");
    print_count("context", fact(facts, "context_tokens"), " tokens");
    if (json_object_get(facts, "window_tokens") != NULL) print_count("window", fact(facts, "window_tokens"), " tokens");
    print_cache(facts);
    print_tokens(facts);
    print_files(facts);
    print_tensors(facts);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int respond(const void *ctx, const struct ash_opts *opts, const char *path)
{
    const struct info_flags *flags = ctx;
    struct ash_err err = {0};
    json_t *facts = NULL;

    (void)opts;
    if (gather(path, flags->tensors, &facts, &err) < 0) return ash_cmd_fail(&err);
    if (flags->json) return ash_cmd_print_json(facts, &err) < 0 ? ash_cmd_fail(&err) : 0;
    print_facts(path, facts);
    json_decref(facts);
    return 0;
}

int ash_model_info(int argc, char **argv)
{
    struct info_flags flags = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&info_table, &flags}},
                                      .takes_word = true,
                                      .missing_word = "which model?",
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}
