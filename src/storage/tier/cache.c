/* Remote objects as local files. A place's folder is named by server, bucket and prefix; next to it is its record, a
 * JSON object of key to version. */
#include "storage/tier/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/opts.h"
#include "storage/s3/url.h"
#include "storage/tier/tier_priv.h"

int ash_tier_cache_root(struct ash_str *path, struct ash_err *err)
{
    const char *own = ash_env_get("ASHLAR_CACHE_DIR"), *shared = ash_env_get("XDG_CACHE_HOME");
    const char *home = ash_env_get("HOME");

    if (own != NULL) return ash_str_adds(path, own);
    if (shared != NULL) return ash_str_addf(path, "%s/ashlar", shared);
    if (home != NULL) return ash_str_addf(path, "%s/.cache/ashlar", home);
    return ash_err_set(err, -ENOENT, "there is no place for a cache: set ASHLAR_CACHE_DIR to a folder");
}

/* A fetch that is under way. */
struct fetch {
    const struct ash_tier_cache *cache;
    struct ash_tier *from, *to;
    struct ash_tier_write *write;
    const char *key, *only; /* only: the one object that is wanted, NULL: all */
    json_t *wanted;         /* key -> [version, size] */
    json_t *record;         /* key -> version, of the files that are there */
    char *record_path;
    uint64_t done_bytes, total_bytes;
    struct ash_err *err;
};

/* ---- what is wanted ---------------------------------------------------------------------------------------------- */

static int note_object(void *ctx, const char *key, const struct ash_tier_object *object)
{
    struct fetch *fetch = ctx;
    size_t length = strlen(key);
    json_t *facts;

    if (fetch->only != NULL && strcmp(key, fetch->only) != 0) return 0;
    if (length > 0 && key[length - 1] == '/') return 0; /* stands for a folder */
    facts = json_pack("[s, I]", object->version, (json_int_t)object->size_bytes);
    if (facts == NULL || json_object_set_new(fetch->wanted, key, facts) < 0) return -ENOMEM;
    return 0;
}

/* Is the file of key there, in this version and size? */
static bool is_cached(struct fetch *fetch, const char *key, const json_t *facts)
{
    const char *version = json_string_value(json_object_get(fetch->record, key));
    struct ash_tier_object file;

    return version != NULL && strcmp(version, json_string_value(json_array_get(facts, 0))) == 0 &&
           ash_tier_stat(fetch->to, key, &file, NULL) == 0 &&
           file.size_bytes == (uint64_t)json_integer_value(json_array_get(facts, 1));
}

/* Take what is there already out of the list of what is wanted. */
static void drop_cached(struct fetch *fetch)
{
    const char *key;
    json_t *facts;
    void *next;

    json_object_foreach_safe(fetch->wanted, next, key, facts)
    {
        if (is_cached(fetch, key, facts))
            json_object_del(fetch->wanted, key);
        else
            fetch->total_bytes += (uint64_t)json_integer_value(json_array_get(facts, 1));
    }
}

/* Remove files whose object is gone. */
static int remove_gone(struct fetch *fetch)
{
    const char *key;
    json_t *version;
    void *next;
    int rc = 0;

    json_object_foreach_safe(fetch->record, next, key, version)
    {
        if (rc < 0 || json_object_get(fetch->wanted, key) != NULL || fetch->only != NULL) continue;
        rc = ash_tier_remove(fetch->to, key, fetch->err);
        json_object_del(fetch->record, key);
    }
    return rc;
}

/* ---- fetching ---------------------------------------------------------------------------------------------------- */

static int take(void *ctx, const void *data, size_t size_bytes, struct ash_err *err)
{
    struct fetch *fetch = ctx;
    const struct ash_tier_cache *cache = fetch->cache;
    int rc = ash_tier_write_add(fetch->to, fetch->write, data, size_bytes, err);

    fetch->done_bytes += size_bytes;
    if (rc < 0 || cache->progress == NULL) return rc;
    return cache->progress(cache->ctx, fetch->key, fetch->done_bytes, fetch->total_bytes, err);
}

static int fetch_one(struct fetch *fetch, const char *key, const char *version)
{
    const struct ash_s3_sink sink = {take, fetch};
    int rc;

    fetch->key = key;
    /* Until the new file is there and recorded, the old one counts for nothing. */
    json_object_del(fetch->record, key);
    rc = ash_json_save(fetch->record_path, fetch->record, fetch->err);
    if (rc == 0) rc = ash_tier_write_open(fetch->to, key, 0, false, &fetch->write, fetch->err);
    if (rc < 0) return rc;
    rc = ash_tier_stream(fetch->from, key, &sink, fetch->err);
    if (rc >= 0) rc = ash_tier_write_finish(fetch->to, fetch->write, fetch->err);
    ash_tier_write_close(fetch->to, fetch->write, false);
    if (rc < 0) return rc;
    if (json_object_set_new(fetch->record, key, json_string(version)) < 0)
        return ash_err_set(fetch->err, -ENOMEM, "out of memory");
    return ash_json_save(fetch->record_path, fetch->record, fetch->err);
}

static int fetch_all(struct fetch *fetch)
{
    const char *key;
    json_t *facts;
    int rc = ash_tier_list(fetch->from, fetch->only != NULL ? fetch->only : "", true, note_object, fetch, fetch->err);

    if (rc == -ENOMEM) return ash_err_set(fetch->err, rc, "out of memory");
    if (rc < 0) return rc;
    if (json_object_size(fetch->wanted) == 0) return -ENOENT;
    rc = remove_gone(fetch);
    if (rc < 0) return rc;
    drop_cached(fetch);
    json_object_foreach(fetch->wanted, key, facts) {
        rc = fetch_one(fetch, key, json_string_value(json_array_get(facts, 0)));
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* A record that cannot be read is none: its files are fetched again. */
static json_t *load_record(const char *path)
{
    json_t *record = NULL;

    if (!ash_path_exists(path) || ash_json_load(path, &record, NULL) < 0 || !json_is_object(record)) {
        json_decref(record);
        record = json_object();
    }
    return record;
}

/* "ROOT/s3/bucket-0123456789abcdef": servers may have buckets of the same name, and prefixes may be no paths. */
static int place_path(const struct ash_tier_cache *cache, const char *bucket, const char *prefix, struct ash_str *path,
                      struct ash_err *err)
{
    const char *given = cache->s3->endpoint;
    const char *server = given != NULL ? given : ash_env_get("AWS_ENDPOINT_URL_S3");
    struct ash_str name = {0};
    int rc = cache->root != NULL ? ash_str_adds(path, cache->root) : ash_tier_cache_root(path, err);

    if (server == NULL) server = ash_env_get("AWS_ENDPOINT_URL");
    if (rc == 0) rc = ash_str_addf(&name, "%s %s %s", server != NULL ? server : "", bucket, prefix);
    if (rc == 0) rc = ash_str_addf(path, "/s3/%s-%016" PRIx64, bucket, ash_hash_str(name.data));
    ash_str_fini(&name);
    return rc;
}

/* Wait until no other process fetches this place. Returns a descriptor that holds the lock until it is closed, or a
 * negative errno. File systems without locks do without. */
static int lock_place(const char *folder, struct ash_err *err)
{
    struct ash_str path = {0};
    int rc = ash_str_addf(&path, "%s.lock", folder), fd = -1;

    if (rc == 0) fd = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (rc == 0 && fd < 0) rc = -errno;
    while (rc == 0 && flock(fd, LOCK_EX) < 0 && errno == EINTR)
        if (ash_interrupt_requested()) rc = -EINTR;
    if (rc < 0) ash_err_set(err, rc, "cannot lock %.300s: %s", path.data != NULL ? path.data : folder, strerror(-rc));
    if (rc < 0 && fd >= 0) close(fd);
    ash_str_fini(&path);
    return rc < 0 ? rc : fd;
}

/* Fetch `only` (NULL: everything) of the place s3://bucket/prefix into its folder, whose path is appended to path. */
static int fetch_place(const struct ash_tier_cache *cache, const struct ash_s3_url *place, const char *only,
                       struct ash_str *path, struct ash_err *err)
{
    struct fetch fetch = {.cache = cache, .only = only, .err = err, .wanted = json_object()};
    struct ash_str folder = {0}, record = {0};
    int rc = place_path(cache, place->bucket, place->key, &folder, err), lock = -1;

    if (rc == 0) rc = ash_str_addf(&record, "%s.json", folder.data);
    if (rc == 0) rc = ash_dir_make(folder.data, err);
    if (rc == 0) rc = lock = lock_place(folder.data, err);
    if (rc >= 0) rc = ash_tier_s3_open(place->bucket, place->key, cache->s3, &fetch.from, err);
    if (rc == 0) rc = ash_tier_dir_open(folder.data, &fetch.to, err);
    if (rc == 0) {
        fetch.record_path = record.data;
        fetch.record = load_record(record.data);
        rc = fetch_all(&fetch);
    }
    if (rc == 0) rc = ash_str_addf(path, "%s%s%s", folder.data, only != NULL ? "/" : "", only != NULL ? only : "");
    if (lock >= 0) close(lock);
    ash_tier_close(fetch.from);
    ash_tier_close(fetch.to);
    json_decref(fetch.wanted);
    json_decref(fetch.record);
    ash_str_fini(&folder);
    ash_str_fini(&record);
    return rc;
}

/* Split "a/b/c" into the prefix "a/b/" (in place) and the name that it returns. */
static const char *split_name(const struct ash_s3_url *url, struct ash_s3_url *place_out)
{
    const char *slash = strrchr(url->key, '/');

    *place_out = *url;
    place_out->key[slash != NULL ? slash + 1 - url->key : 0] = '\0';
    return slash != NULL ? slash + 1 : url->key;
}

int ash_tier_cache_fetch(const struct ash_tier_cache *cache, const char *url, struct ash_str *path, struct ash_err *err)
{
    struct ash_s3_url parsed, place;
    size_t length;
    int rc = ash_s3_url_parse(url, &parsed, err);

    if (rc < 0) return rc;
    length = strlen(parsed.key);
    if (length > 0 && parsed.key[length - 1] != '/') {
        const char *name = split_name(&parsed, &place);

        rc = fetch_place(cache, &place, name, path, err); /* an object of this name? */
        if (rc != -ENOENT) return rc;
        if (length + 1 < sizeof(parsed.key)) memcpy(parsed.key + length, "/", 2);
    }
    rc = fetch_place(cache, &parsed, NULL, path, err);
    return rc == -ENOENT && (err == NULL || err->code != rc) ? ash_err_set(err, rc, "there is nothing at %.300s", url)
                                                             : rc;
}
