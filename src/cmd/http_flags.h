/* http_flags - how a command serves HTTP: the flags of `serve` and `route`, and what follows from them. */
#ifndef ASH_CMD_HTTP_FLAGS_H
#define ASH_CMD_HTTP_FLAGS_H

#include "base/opts.h"
#include "http/http.h"

struct ash_http_flags {
    const char *host, *api_key_file, *admin_key, *ssl_certfile, *ssl_keyfile;
    struct ash_opt_list api_key, cors_origins, allowed_hosts;
    int64_t port, max_connections, max_connections_per_client, max_body_bytes, threads_http;
    bool access_log;
    double requests_per_minute, tokens_per_minute, header_seconds, body_seconds, stall_seconds, shutdown_timeout;
};

/* Bind it next to the command's own table: `{&ash_http_flags_table, &flags.http}`. */
extern const struct ash_opt_table ash_http_flags_table;

/* The server's options; the caller adds keys, routes, refuse and ctx. The flags are borrowed. */
struct ash_http_opts ash_http_flags_opts(const struct ash_http_flags *flags);
/* Read the keys; has_lasting_ids as in struct ash_keys_opts. The flags are borrowed until the keys are closed. */
int ash_http_flags_open_keys(const struct ash_http_flags *flags, bool has_lasting_ids, struct ash_keys **keys_out,
                             struct ash_err *err);
/* Read the file of keys again, and log the outcome. */
void ash_http_flags_reload_keys(struct ash_keys *keys);
/* Log the address that it listens on, with a warning if all who reach it may use it. */
void ash_http_flags_report(const struct ash_http_flags *flags, const struct ash_http *http, struct ash_keys *keys);
/* Raise the process's limit of descriptors: every connection has `each`. */
void ash_http_flags_raise_limit(const struct ash_http_flags *flags, unsigned each);

#endif
