/* Page files in a bucket: FINGERPRINT/NAME.kv. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/tier/tier.h"
#include "serve/kv/store.h"

struct remote {
    struct ash_kv_store base;
    struct ash_tier *tier;
};

static struct ash_tier *tier_of(struct ash_kv_store *store)
{
    return ((struct remote *)(void *)store)->tier;
}

static void object_key(uint64_t fingerprint, struct ash_kv_name name, char key_out[ASH_TIER_KEY_BYTES])
{
    char text[ASH_KV_NAME_BYTES];

    ash_kv_name_print(name, text);
    snprintf(key_out, ASH_TIER_KEY_BYTES, "%016llx/%s.kv", (unsigned long long)fingerprint, text);
}

struct listing {
    ash_kv_listed_fn each;
    void *ctx;
};

static int take_listed(void *ctx, const char *key, const struct ash_tier_object *object)
{
    const struct listing *listing = ctx;
    const char *slash = strrchr(key, '/'), *text = slash != NULL ? slash + 1 : key;
    char name[ASH_KV_NAME_BYTES] = "";
    struct ash_kv_listed file;

    if (object == NULL || strlen(text) != sizeof(name) - 1 + 3 || strcmp(text + sizeof(name) - 1, ".kv") != 0) return 0;
    memcpy(name, text, sizeof(name) - 1);
    if (!ash_kv_name_read(name, &file.name)) return 0;
    file.bytes = object->size_bytes;
    file.modified_s = object->modified_s;
    return listing->each(listing->ctx, &file);
}

static int list_remote(struct ash_kv_store *store, uint64_t fingerprint, ash_kv_listed_fn each, void *ctx,
                       struct ash_err *err)
{
    struct listing listing = {each, ctx};
    char prefix[32];

    snprintf(prefix, sizeof(prefix), "%016llx/", (unsigned long long)fingerprint);
    return ash_tier_list(tier_of(store), prefix, true, take_listed, &listing, err);
}

static int read_remote(struct ash_kv_store *store, uint64_t fingerprint, struct ash_kv_name name, void *data,
                       size_t bytes)
{
    char key[ASH_TIER_KEY_BYTES];
    struct ash_tier_range range = {.key = key, .size_bytes = bytes};
    struct ash_err err = {0};

    object_key(fingerprint, name, key);
    return ash_tier_read(tier_of(store), &range, data, &err);
}

static int write_remote(struct ash_kv_store *store, uint64_t fingerprint, struct ash_kv_name name, const void *data,
                        size_t bytes)
{
    struct ash_tier *tier = tier_of(store);
    struct ash_tier_write *write = NULL;
    char key[ASH_TIER_KEY_BYTES];
    struct ash_err err = {0};
    int rc;

    object_key(fingerprint, name, key);
    rc = ash_tier_write_open(tier, key, bytes, false, &write, &err);
    if (rc == 0) rc = ash_tier_write_add(tier, write, data, bytes, &err);
    if (rc == 0) rc = ash_tier_write_finish(tier, write, &err);
    ash_tier_write_close(tier, write, false);
    return rc;
}

static int remove_remote(struct ash_kv_store *store, uint64_t fingerprint, struct ash_kv_name name)
{
    char key[ASH_TIER_KEY_BYTES];
    struct ash_err err = {0};

    object_key(fingerprint, name, key);
    return ash_tier_remove(tier_of(store), key, &err);
}

/* The bucket's owner has rules for what goes when. */
static void touch_remote(struct ash_kv_store *store, struct ash_kv_name name)
{
    (void)store;
    (void)name;
}

static void close_remote(struct ash_kv_store *store)
{
    ash_tier_close(tier_of(store));
    free(store);
}

static const struct ash_kv_store_ops remote_ops = {.size = sizeof(remote_ops),
                                                   .name = "remote",
                                                   .list = list_remote,
                                                   .read = read_remote,
                                                   .write = write_remote,
                                                   .remove = remove_remote,
                                                   .touch = touch_remote,
                                                   .close = close_remote};

int ash_kv_store_open_remote(const char *url, const struct ash_s3_opts *s3, struct ash_kv_store **store_out,
                             struct ash_err *err)
{
    struct remote *remote = calloc(1, sizeof(*remote));
    int rc = remote != NULL ? ash_tier_open(url, s3, &remote->tier, err) : ash_err_set(err, -ENOMEM, "out of memory");

    if (rc < 0) {
        free(remote);
        return rc;
    }
    remote->base.ops = &remote_ops;
    *store_out = &remote->base;
    return 0;
}
