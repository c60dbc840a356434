/* ashlar store put and get: copying objects between this machine's folders and S3, one or all below a place. */
#include "cmd/store_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/clock.h"
#include "cmd/units.h"

#define FLAG(name) offsetof(struct ash_store_flags, name)

/* A copy that is under way. */
struct copy {
    struct ash_tier *from, *to;
    struct ash_tier_write *write;
    struct ash_store_progress progress;
    bool wants_resume;
    uint64_t resumed_bytes;
};

static int take(void *ctx, const void *data, size_t size_bytes, struct ash_err *err)
{
    struct copy *copy = ctx;
    int rc = ash_tier_write_add(copy->to, copy->write, data, size_bytes, err);

    return rc < 0 ? rc : ash_store_progress_add(&copy->progress, size_bytes, err);
}

static int copy_one(struct copy *copy, const char *from_key, const char *to_key, uint64_t size_bytes,
                    struct ash_err *err)
{
    const struct ash_s3_sink sink = {take, copy};
    int rc = ash_tier_write_open(copy->to, to_key, size_bytes, copy->wants_resume, &copy->write, err);

    if (rc < 0) return rc;
    rc = ash_tier_stream(copy->from, from_key, &sink, err);
    if (rc >= 0) rc = ash_tier_write_finish(copy->to, copy->write, err);
    copy->resumed_bytes += ash_tier_write_resumed_bytes(copy->to, copy->write);
    /* Sent parts of a large object are kept for a retry; `store gc` removes abandoned ones. */
    ash_tier_write_close(copy->to, copy->write, rc < 0);
    copy->write = NULL;
    ash_progress_bar_clear(&copy->progress.bar);
    return rc < 0 ? rc : 0;
}

static bool is_folder(const char *path)
{
    struct stat info;

    return !ash_tier_is_url(path) && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool ends_with_slash(const char *text)
{
    return text[0] != '\0' && text[strlen(text) - 1] == '/';
}

/* One object to one object, or into a place (a folder, or what ends with a slash) under its own name. */
static int copy_object(struct copy *copy, const struct ash_s3_opts *s3, const char *const *words, struct ash_err *err)
{
    char from_key[ASH_TIER_KEY_BYTES], to_key[ASH_TIER_KEY_BYTES];
    struct ash_tier_object object = {0};
    const char *name;
    int rc = ash_tier_open_object(words[0], s3, &copy->from, from_key, err);

    if (rc == 0) rc = ash_tier_stat(copy->from, from_key, &object, err);
    if (rc < 0) return rc;
    name = strrchr(from_key, '/') != NULL ? strrchr(from_key, '/') + 1 : from_key;
    if (is_folder(words[1]) || ends_with_slash(words[1]) ||
        (ash_tier_is_url(words[1]) && strchr(words[1] + 5, '/') == NULL)) {
        snprintf(to_key, sizeof(to_key), "%s", name);
        rc = ash_tier_open(words[1], s3, &copy->to, err);
    } else {
        rc = ash_tier_open_object(words[1], s3, &copy->to, to_key, err);
    }
    copy->progress.total_bytes = object.size_bytes;
    return rc < 0 ? rc : copy_one(copy, from_key, to_key, object.size_bytes, err);
}

/* Everything below one place to the same names below another. */
static int copy_place(struct copy *copy, const struct ash_s3_opts *s3, const char *const *words, size_t *count_out,
                      struct ash_err *err)
{
    struct ash_store_keys keys = {0};
    int rc = ash_tier_open(words[0], s3, &copy->from, err);

    if (rc == 0) rc = ash_tier_open(words[1], s3, &copy->to, err);
    if (rc == 0) rc = ash_store_keys_read(copy->from, "", &keys, err);
    if (rc == 0 && keys.count == 0) rc = ash_err_set(err, -ENOENT, "there is nothing at %.300s", words[0]);
    copy->progress.total_bytes = keys.total_bytes;
    for (size_t i = 0; rc == 0 && i < keys.count; i++) {
        size_t length = strlen(keys.keys[i]);

        /* Consoles make empty objects that stand for folders. */
        if (keys.sizes[i] == 0 && keys.keys[i][length > 0 ? length - 1 : 0] == '/') continue;
        rc = copy_one(copy, keys.keys[i], keys.keys[i], keys.sizes[i], err);
        *count_out += 1;
    }
    ash_store_keys_fini(&keys);
    return rc;
}

/* Put one file into the namespace of its place: it is on this machine alone until it is exported. */
static int defer_file(const struct ash_store_flags *flags, const struct ash_s3_opts *s3, const char *const *words,
                      struct ash_err *err)
{
    const char *slash = strrchr(words[1], '/'), *name = strrchr(words[0], '/');
    struct ash_namespace *space = NULL;
    char place[2 * ASH_TIER_KEY_BYTES], size[ASH_UNITS_BYTES];
    struct stat info;
    int rc;

    if (!ash_tier_is_url(words[1]) || slash < words[1] + 6)
        return ash_err_set(err, -EINVAL, "--defer is for s3://bucket/key, not '%.200s'", words[1]);
    if (stat(words[0], &info) < 0 || !S_ISREG(info.st_mode))
        return ash_err_set(err, -ENOENT, "%.300s: there is no such file", words[0]);
    snprintf(place, sizeof(place), "%.*s", (int)(slash - words[1]), words[1]);
    name = ends_with_slash(words[1]) ? (name != NULL ? name + 1 : words[0]) : slash + 1;
    rc = ash_namespace_open(place, &flags->cache, s3, &space, err);
    if (rc == 0) rc = ash_namespace_put(space, name, words[0], false, err);
    if (rc == 0)
        printf("1 object, %s, durable on this machine (%s), not yet in %s\n",
               ash_units_bytes((size_t)info.st_size, size, sizeof(size)), ash_namespace_folder(space), place);
    ash_namespace_close(space);
    return rc;
}

static int copy_respond(const struct ash_store_flags *flags, const struct ash_s3_opts *s3, const char *const *words,
                        struct ash_err *err)
{
    struct copy copy = {.wants_resume = flags->wants_resume};
    char size[ASH_UNITS_BYTES], resumed[ASH_UNITS_BYTES], took[32];
    size_t count = 1;
    int rc;

    ash_progress_bar_init(&copy.progress.bar);
    if (!flags->is_recursive && is_folder(words[0]))
        return ash_err_set(err, -EISDIR, "%.300s is a folder: --recursive copies its content", words[0]);
    if (flags->wants_defer && flags->is_recursive)
        return ash_err_set(err, -EINVAL, "--defer takes one file at a time, not --recursive");
    if (flags->wants_defer) return defer_file(flags, s3, words, err);
    if (flags->is_recursive) {
        count = 0;
        rc = copy_place(&copy, s3, words, &count, err);
    } else {
        rc = copy_object(&copy, s3, words, err);
    }
    ash_progress_bar_clear(&copy.progress.bar);
    if (rc == 0) {
        double seconds = ash_progress_bar_seconds(&copy.progress.bar);

        printf("%zu %s, %s in %s, %.0f MB/s, durable in %s\n", count, count == 1 ? "object" : "objects",
               ash_units_bytes(copy.progress.done_bytes, size, sizeof(size)),
               ash_clock_format(seconds, took, sizeof(took)), (double)copy.progress.done_bytes / 1e6 / (seconds + 1e-9),
               ash_tier_is_url(words[1]) ? "S3" : "the folder");
        if (copy.resumed_bytes > 0)
            printf("%s of it were there from an earlier attempt\n",
                   ash_units_bytes(copy.resumed_bytes, resumed, sizeof(resumed)));
    }
    ash_tier_close(copy.from);
    ash_tier_close(copy.to);
    return rc;
}

/* ---- put --------------------------------------------------------------------------------------------------------- */

static const struct ash_cmd_usage put_usage = {
    .synopsis = "ashlar store put PATH URL",
    .about =
        "Copies a file to s3://bucket/key or another path; the object appears whole or not at all. Where URL ends\n"
        "with a slash the file keeps its name. --recursive copies all below a folder. Large files are sent in\n"
        "parts; --resume continues with an upload that was interrupted, and sends only the parts that are missing.",
    .examples = "  ashlar store put model.safetensors s3://models/gpt2/\n"
                "  ashlar store put runs/gpt2 s3://models/gpt2 --recursive\n"
                "  ashlar store put big.bin s3://models/big.bin --resume",
};
static const struct ash_opt put_opts[] = {
    {"recursive", ASH_OPT_BOOL, FLAG(is_recursive), "false", "copy all below a folder", 0, 0, NULL},
    {"resume", ASH_OPT_BOOL, FLAG(wants_resume), "false", "continue with an interrupted upload", 0, 0, NULL},
    {"defer", ASH_OPT_BOOL, FLAG(wants_defer), "false",
     "end when the file is on this machine's disk; `store status --export` sends it", 0, 0, NULL},
};

static int put_run(int argc, char **argv)
{
    const struct ash_store_form form = {.usage = &put_usage,
                                        .opts = put_opts,
                                        .opt_count = ASH_COUNT(put_opts),
                                        .word_count = 2,
                                        .missing_word = "name what to copy and where to: PATH URL",
                                        .respond = copy_respond};

    return ash_store_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_store_put = {"put", "copy files to S3 or another folder", put_run};

/* ---- get --------------------------------------------------------------------------------------------------------- */

static const struct ash_cmd_usage get_usage = {
    .synopsis = "ashlar store get URL PATH",
    .about =
        "Copies an object to a file, several ranges at a time. The file appears when all bytes are there, on disk and\n"
        "compared with the checksum of the ETag, if it has one. --recursive copies all below a place.",
    .examples = "  ashlar store get s3://models/gpt2/model.safetensors .\n"
                "  ashlar store get s3://models/gpt2 gpt2 --recursive",
};
static const struct ash_opt get_opts[] = {
    {"recursive", ASH_OPT_BOOL, FLAG(is_recursive), "false", "copy all below a place", 0, 0, NULL},
};

static int get_run(int argc, char **argv)
{
    const struct ash_store_form form = {.usage = &get_usage,
                                        .opts = get_opts,
                                        .opt_count = ASH_COUNT(get_opts),
                                        .word_count = 2,
                                        .missing_word = "name what to copy and where to: URL PATH",
                                        .respond = copy_respond};

    return ash_store_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_store_get = {"get", "copy objects to files", get_run};
