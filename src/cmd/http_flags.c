/* --host, --port, keys, limits and deadlines, for every command that serves clients over HTTP. */
#include "cmd/http_flags.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "base/assert.h"
#include "base/log.h"
#include "cmd/cmd.h"

#define FIELD(name) offsetof(struct ash_http_flags, name)
#define SPARE_DESCRIPTORS 512 /* beside connections of clients */

static const struct ash_opt opts[] = {
    {"host", ASH_OPT_STRING, FIELD(host), "127.0.0.1", "address to listen on; 0.0.0.0: all", 0, 0, NULL},
    {"port", ASH_OPT_INT, FIELD(port), "8000", "port to listen on; 0: any that is free", 0, 65535, NULL},
    {"api_key", ASH_OPT_LIST, FIELD(api_key), NULL,
     "clients must send one of these keys (better: ASHLAR_API_KEY in the environment)", 0, 0, NULL},
    {"api_key_file", ASH_OPT_STRING, FIELD(api_key_file), NULL,
     "a key per line, with name=, rpm= and tpm= after it; read again on SIGHUP", 0, 0, NULL},
    {"admin_key", ASH_OPT_STRING, FIELD(admin_key), NULL, "opens routes that change the server", 0, 0, NULL},
    {"requests_per_minute", ASH_OPT_DOUBLE, FIELD(requests_per_minute), "0", "limit of each key; 0: none", 0, INFINITY,
     NULL},
    {"tokens_per_minute", ASH_OPT_DOUBLE, FIELD(tokens_per_minute), "0", "limit of each key; 0: none", 0, INFINITY,
     NULL},
    {"cors_origins", ASH_OPT_LIST, FIELD(cors_origins), NULL,
     "pages of these origins may call; *: all; default: those of this machine", 0, 0, NULL},
    {"allowed_hosts", ASH_OPT_LIST, FIELD(allowed_hosts), NULL, ASH_CMD_HOSTS_HELP, 0, 0, NULL},
    {"ssl_certfile", ASH_OPT_STRING, FIELD(ssl_certfile), NULL, "PEM certificate chain: serve HTTPS", 0, 0, NULL},
    {"ssl_keyfile", ASH_OPT_STRING, FIELD(ssl_keyfile), NULL, "its PEM key", 0, 0, NULL},
    {"access_log", ASH_OPT_BOOL, FIELD(access_log), "true", "a line per request on standard error", 0, 0, NULL},
    {"max_connections", ASH_OPT_INT, FIELD(max_connections), "1024",
     "if all are taken, the longest idle one is closed for a new one; if all have requests, it gets 503", 1, 100000,
     NULL},
    {"max_connections_per_client", ASH_OPT_INT, FIELD(max_connections_per_client), "0",
     "the same for one address; 0: three quarters of --max-connections, of this machine all", 0, 100000, NULL},
    {"max_body_bytes", ASH_OPT_INT, FIELD(max_body_bytes), "64mi", "of one request; more get 413", 1, 1LL << 40, NULL},
    {"threads_http", ASH_OPT_INT, FIELD(threads_http), "2", "threads that read requests and tokenise", 1, 256, NULL},
    {"header_seconds", ASH_OPT_DOUBLE, FIELD(header_seconds), "20", "a request's header must come within", 0.1, 86400,
     NULL},
    {"body_seconds", ASH_OPT_DOUBLE, FIELD(body_seconds), "60", "its body must come within", 0.1, 86400, NULL},
    {"stall_seconds", ASH_OPT_DOUBLE, FIELD(stall_seconds), "60", "a client that takes no byte for so long is dropped",
     0.1, 86400, NULL},
    {"shutdown_timeout", ASH_OPT_DOUBLE, FIELD(shutdown_timeout), "30",
     "on SIGTERM, answers that are being written may take so long", 0, 86400, NULL},
};

const struct ash_opt_table ash_http_flags_table = {
    .section = "", .help = "HTTP", .opts = opts, .count = ASH_COUNT(opts)};

/* An empty path is none: it takes back one that was given before. */
static const char *given(const char *path)
{
    return path != NULL && path[0] != '\0' ? path : NULL;
}

struct ash_http_opts ash_http_flags_opts(const struct ash_http_flags *flags)
{
    struct ash_http_opts http = ash_http_defaults();

    http.host = flags->host;
    http.port = (int)flags->port;
    http.connections_max = (size_t)flags->max_connections;
    http.client_connections_max = (size_t)flags->max_connections_per_client;
    http.body_bytes_max = (size_t)flags->max_body_bytes;
    http.workers = (size_t)flags->threads_http;
    http.header_seconds = flags->header_seconds;
    http.body_seconds = flags->body_seconds;
    http.stall_seconds = flags->stall_seconds;
    http.cert_file = given(flags->ssl_certfile);
    http.key_file = given(flags->ssl_keyfile);
    http.origins = flags->cors_origins.items;
    http.origin_count = flags->cors_origins.count;
    http.names = flags->allowed_hosts.items;
    http.name_count = flags->allowed_hosts.count;
    http.logs_access = flags->access_log;
    return http;
}

int ash_http_flags_open_keys(const struct ash_http_flags *flags, bool has_lasting_ids, struct ash_keys **keys_out,
                             struct ash_err *err)
{
    struct ash_keys_opts keys = {.keys = flags->api_key.items,
                                 .key_count = flags->api_key.count,
                                 .file = flags->api_key_file,
                                 .admin_key = flags->admin_key,
                                 .requests_per_minute = flags->requests_per_minute,
                                 .tokens_per_minute = flags->tokens_per_minute,
                                 .has_lasting_ids = has_lasting_ids};

    return ash_keys_open(&keys, keys_out, err);
}

void ash_http_flags_reload_keys(struct ash_keys *keys)
{
    struct ash_err err = {0};

    if (ash_keys_reload(keys, &err) < 0)
        ash_log(ASH_LOG_ERROR, "API keys stay as they were: %s", err.text);
    else
        ash_log(ASH_LOG_INFO, "API keys were read again");
}

void ash_http_flags_report(const struct ash_http_flags *flags, const struct ash_http *http, struct ash_keys *keys)
{
    const char *host = flags->host;

    ash_log(ASH_LOG_INFO, "listening on %s port %d", host, ash_http_port(http));
    if (strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0) return;
    if (ash_keys_are_needed(keys)) return;
    ash_log(ASH_LOG_WARN, "all who reach %s can use this server: --api-key-file asks for keys", host);
}

void ash_http_flags_raise_limit(const struct ash_http_flags *flags, unsigned each)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)flags->max_connections * each + SPARE_DESCRIPTORS;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
}
