/* HTTP responses and their events: any bytes, and the same result however they are cut. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "serve/client/load_priv.h"
#include "serve/client/response.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static int see(void *ctx, const char *text, size_t size_bytes)
{
    uint64_t *hash = ctx;
    struct ash_load_event event;

    *hash = ash_hash_bytes(text, size_bytes, *hash + 1);
    (void)ash_load_read_event(text, size_bytes, &event);
    return size_bytes == 4 && memcmp(text, "stop", 4) == 0 ? -1 : 0;
}

static int see_header(void *ctx, const char *name, const char *value)
{
    struct ash_str *seen = ctx;

    return ash_str_addf(seen, "%s=%s\n", name, value);
}

static int see_body(void *ctx, const char *bytes, size_t bytes_count)
{
    return ash_str_add(ctx, bytes, bytes_count);
}

/* The same with headers and body as they come. */
static uint64_t read_raw(const uint8_t *data, size_t size_bytes, size_t piece_bytes)
{
    struct ash_response response;
    struct ash_str seen = {0};
    uint64_t hash;
    int rc = 0;

    ash_response_init(&response, NULL, &seen);
    response.see_header = see_header;
    response.see_body = see_body;
    for (size_t at = 0; at < size_bytes && rc >= 0; at += piece_bytes)
        rc = ash_response_push(&response, (const char *)data + at,
                               size_bytes - at < piece_bytes ? size_bytes - at : piece_bytes);
    if (rc == 0) rc = ash_response_end(&response);
    hash = ash_hash_bytes(seen.data != NULL ? seen.data : "", seen.size_bytes, (uint64_t)(rc + 1000));
    ash_response_fini(&response);
    ash_str_fini(&seen);
    return hash;
}

static uint64_t read_all(const uint8_t *data, size_t size_bytes, size_t piece_bytes)
{
    struct ash_response response;
    struct ash_err err = {0};
    uint64_t hash = 0;
    int rc = 0;

    ash_response_init(&response, see, &hash);
    for (size_t at = 0; at < size_bytes && rc >= 0; at += piece_bytes)
        rc = ash_response_push(&response, (const char *)data + at,
                               size_bytes - at < piece_bytes ? size_bytes - at : piece_bytes);
    if (rc == 0) rc = ash_response_end(&response);
    if (rc == 1 && response.body.data != NULL) {
        hash = ash_hash_bytes(response.body.data, response.body.size_bytes, hash);
        (void)ash_load_server_err(response.status, response.body.data, &err);
    }
    hash = ash_hash_mix(hash + (uint64_t)(rc + 1000) * 1000 + response.status);
    ash_response_fini(&response);
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    uint64_t whole = read_all(data, size_bytes, size_bytes + 1);

    if (read_all(data, size_bytes, 1) != whole || read_all(data, size_bytes, 7) != whole) abort();
    if (read_raw(data, size_bytes, 1) != read_raw(data, size_bytes, size_bytes + 1)) abort();
    return 0;
}
