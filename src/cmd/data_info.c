/* ashlar data info: contents of a folder of token shards, its completeness, and its documents as text. */
#include "cmd/data_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/str.h"
#include "text/tokenizer/tokenizer.h"
#include "train/data/dataset_folder.h"

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar data info DIR",
    .about = "Says what a folder of token shards holds: tokens, documents, end token, sizes and where they come from.",
    .examples = "  ashlar data info data/train --show 5\n"
                "  ashlar data info data/train --verify",
};

struct settings {
    bool verify, json;
    int64_t show;
};

static const struct ash_opt opts_list[] = {
    {"verify", ASH_OPT_BOOL, offsetof(struct settings, verify), "false", "read every token and compare checksums", 0, 0,
     NULL},
    {"show", ASH_OPT_INT, offsetof(struct settings, show), "0", "print the text of the first N documents", 0, 1e9,
     NULL},
    {"json", ASH_OPT_BOOL, offsetof(struct settings, json), "false", "print one JSON object", 0, 0, NULL},
};

int ash_cmd_data_describe(const char *dir)
{
    struct ash_data_manifest manifest = {0};
    struct ash_err err = {0};
    json_t *facts;

    if (ash_data_manifest_load(dir, &manifest, &err) < 0) return ash_cmd_fail(&err);
    facts = ash_cmd_data_facts(dir, &manifest);
    ash_cmd_data_print_summary(facts);
    json_decref(facts);
    ash_data_manifest_fini(&manifest);
    return 0;
}

static int open_shard(const char *dir, const struct ash_data_manifest *manifest, size_t index,
                      struct ash_shard **shard_out, struct ash_err *err)
{
    struct ash_shard *shard = NULL;
    char path[PATH_MAX];
    int rc = ash_path_join(path, sizeof(path), dir, manifest->shards[index].file);

    if (rc < 0) return ash_err_set(err, rc, "%s: the path is too long", dir);
    rc = ash_shard_open(path, &shard, err);
    if (rc < 0) return rc;
    rc = ash_data_manifest_check(manifest, index, shard, path, err);
    if (rc < 0) {
        ash_shard_close(shard);
        return rc;
    }
    *shard_out = shard;
    return 0;
}

static int verify(const char *dir, const struct ash_data_manifest *manifest, struct ash_err *err)
{
    for (size_t i = 0; i < manifest->shard_count; i++) {
        struct ash_shard *shard = NULL;
        int rc = open_shard(dir, manifest, i, &shard, err);

        if (rc < 0) return rc;
        rc = ash_shard_verify(shard, err);
        ash_shard_close(shard);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Print document [begin, end) of shard on one line, or on more if it has some. */
static int print_document(const struct ash_shard *shard, const struct ash_tokenizer *tokenizer, size_t begin,
                          size_t end, struct ash_err *err)
{
    struct ash_str text = {0};
    int32_t *ids = malloc((end - begin) * sizeof(*ids));
    int rc;

    if (ids == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = ash_shard_read(shard, begin, end - begin, ids, err);
    if (rc == 0) rc = ash_tokenizer_decode(tokenizer, ids, end - begin, false, &text, err);
    if (rc == 0) {
        fwrite(text.data, 1, text.size_bytes, stdout);
        putchar('\n');
    }
    ash_str_fini(&text);
    free(ids);
    return rc;
}

static int show(const char *dir, const struct ash_data_manifest *manifest, uint64_t wanted, struct ash_err *err)
{
    struct ash_tokenizer *tokenizer = NULL;
    int rc = ash_tokenizer_open(dir, &tokenizer, err);

    putchar('\n');
    for (size_t i = 0; rc == 0 && wanted > 0 && i < manifest->shard_count; i++) {
        struct ash_shard *shard = NULL;
        size_t begin = 0;

        rc = open_shard(dir, manifest, i, &shard, err);
        for (size_t d = 0; rc == 0 && wanted > 0 && d < manifest->shards[i].documents; d++, wanted--) {
            size_t end = ash_shard_doc_end(shard, d);

            rc = print_document(shard, tokenizer, begin, end, err);
            begin = end;
        }
        ash_shard_close(shard);
    }
    ash_tokenizer_close(tokenizer);
    return rc;
}

/* The facts, as JSON or in words. */
static int print_facts(const char *dir, const struct ash_data_manifest *manifest, const struct settings *settings,
                       struct ash_err *err)
{
    json_t *facts = ash_cmd_data_facts(dir, manifest);

    if (settings->verify) json_object_set_new(facts, "verified", json_true());
    if (settings->json) return ash_cmd_print_json(facts, err);
    ash_cmd_data_print_summary(facts);
    ash_cmd_data_print_details(facts);
    if (settings->verify) printf("  verified     every id is inside the vocabulary and every checksum is right\n");
    json_decref(facts);
    return 0;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *dir)
{
    const struct settings *settings = ctx;
    struct ash_data_manifest manifest = {0};
    struct ash_err err = {0};
    int rc;

    (void)opts;
    if (settings->json && settings->show > 0)
        return ash_cmd_misuse("data info", "--json and --show exclude each other");
    rc = ash_data_manifest_load(dir, &manifest, &err);
    if (rc < 0) return ash_cmd_fail(&err);
    rc = settings->verify ? verify(dir, &manifest, &err) : ash_data_manifest_check_all(&manifest, dir, &err);
    if (rc == 0) rc = print_facts(dir, &manifest, settings, &err);
    if (rc == 0 && settings->show > 0) rc = show(dir, &manifest, (uint64_t)settings->show, &err);
    ash_data_manifest_fini(&manifest);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    const struct ash_opt_table table = {"", "options", opts_list, ASH_COUNT(opts_list)};
    struct settings settings = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&table, &settings}},
                                      .takes_word = true,
                                      .missing_word = "name a folder of token shards",
                                      .respond = respond,
                                      .flags = &settings};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_data_info = {"info", "what a folder of token shards holds", run};
