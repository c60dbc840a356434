/* Flags of the tiers below the key-value cache of `ashlar serve`. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "cmd/cmd.h"
#include "cmd/serve_priv.h"
#include "serve/api/apart.h"

#define FIELD(name) offsetof(struct ash_serve_kv_flags, name)

static const struct ash_opt kv_opts[] = {
    {"kv_host_memory", ASH_OPT_INT, FIELD(host_memory), "0",
     "bytes of host memory for pages that leave the cache, where that is in GPU memory. On a CPU the cache is in host "
     "memory itself: give the bytes to --kv-cache-memory there",
     0, INFINITY, NULL},
    {"kv_dir", ASH_OPT_STRING, FIELD(dir), NULL,
     "a folder on a fast disk, for full pages of the cache: equal beginnings of prompts are read, after a restart too, "
     "where that is faster than computing them",
     0, 0, NULL},
    {"kv_dir_size", ASH_OPT_INT, FIELD(dir_size), "32gi",
     "bytes of all files in --kv-dir; those used longest ago are removed", 0, INFINITY, NULL},
    {"kv_remote", ASH_OPT_STRING, FIELD(remote), NULL,
     "s3://bucket/prefix, for the same pages; several servers may share it", 0, 0, NULL},
    {"role", ASH_OPT_CHOICE, FIELD(role), "both",
     "of this server behind `ashlar route`: prefill computes long prompts for decode servers, which read the pages and "
     "write the answers; each answers whole requests too",
     0, 0, ash_api_roles},
    {"prefill_memory", ASH_OPT_INT, FIELD(prefill_memory), "1gi",
     "with --role prefill: bytes of memory for pages that decode servers read", 0, INFINITY, NULL},
};

const struct ash_opt_table ash_serve_kv_table = {
    .section = "", .help = "tiers below the cache of keys and values", .opts = kv_opts, .count = ASH_COUNT(kv_opts)};

int ash_serve_kv_open(const struct ash_serve_flags *flags, struct ash_serve_kv *kv, struct ash_err *err)
{
    const struct ash_serve_kv_flags *from = &flags->kv;
    int rc;

    if (from->host_memory == 0 && from->dir == NULL && from->remote == NULL && from->role == ASH_API_BOTH) return 0;
    if (!flags->enable_prefix_caching && from->role != ASH_API_BOTH)
        return ash_err_set(err, -EINVAL, "--role %s: it needs the prefix cache: leave --no-enable-prefix-caching out",
                           ash_api_roles[from->role]);
    if (!flags->enable_prefix_caching)
        return ash_err_set(err, -EINVAL,
                           "tiers hold prefixes: --no-enable-prefix-caching goes without --kv-host-memory, "
                           "--kv-dir and --kv-remote");
    if (from->remote != NULL && strncmp(from->remote, "s3://", 5) != 0)
        return ash_err_set(err, -EINVAL, "--kv-remote: '%.100s' is not s3://bucket/prefix; a folder goes with --kv-dir",
                           from->remote);
    rc = ash_namespace_settings_init(&kv->settings, err);
    if (rc < 0) return rc;
    kv->has_settings = true;
    kv->opts = (struct ash_kv_opts){.host_bytes = (uint64_t)from->host_memory,
                                    .dir = from->dir,
                                    .dir_bytes = (uint64_t)from->dir_size,
                                    .remote = from->remote,
                                    .s3 = &kv->settings.s3,
                                    .shelf_bytes = from->role == ASH_API_PREFILL ? (uint64_t)from->prefill_memory : 0,
                                    .reads_peers = from->role == ASH_API_DECODE};
    return 1;
}

bool ash_serve_kv_lasts(const struct ash_serve_flags *flags)
{
    return flags->kv.dir != NULL || flags->kv.remote != NULL || flags->kv.role != ASH_API_BOTH;
}

int ash_serve_pages_key(const struct ash_serve_flags *flags, const char **key_out, struct ash_err *err)
{
    const struct ash_http_flags *http = &flags->http;
    bool has_keys = http->api_key.count > 0 || http->api_key_file != NULL;

    if (has_keys && http->admin_key == NULL && flags->kv.role == ASH_API_DECODE)
        return ash_err_set(err, -EINVAL,
                           "--role decode: with API keys, --admin-key is needed too: the router brings it when it says "
                           "where pages are (ashlar route --replica-admin-key)");
    *key_out = http->admin_key;
    return ash_cmd_read_secret(key_out, err);
}

void ash_serve_kv_close(struct ash_serve_kv *kv)
{
    if (kv->has_settings) ash_namespace_settings_fini(&kv->settings);
    kv->has_settings = false;
}
