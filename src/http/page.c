/* A page is one document. A browser runs and paints what carries this response's nonce, talks to this server and loads
 * nothing; the page writes no HTML text (trusted types), so texts of others stay text. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/assert.h"
#include "http/http.h"

#define NONCE_BYTES 16
#define POLICY                                                                                                         \
    "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; img-src data:; "             \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "                \
    "trusted-types 'none'"

static int make_nonce(char *hex)
{
    uint8_t bytes[NONCE_BYTES];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) return -EIO;
    for (size_t i = 0; i < NONCE_BYTES; i++) {
        hex[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    hex[2 * NONCE_BYTES] = '\0';
    return 0;
}

void ash_http_respond_page(struct ash_http_exchange *exchange, int (*write)(const char *nonce, struct ash_str *out))
{
    char nonce[2 * NONCE_BYTES + 1];
    struct ash_str body = {0}, policy = {0};
    int rc = make_nonce(nonce);

    if (rc == 0) rc = ash_str_addf(&policy, POLICY, nonce, nonce);
    if (rc == 0) rc = write(nonce, &body);
    if (rc == 0) {
        ash_http_add_header(exchange, "Content-Security-Policy", policy.data);
        ash_http_add_header(exchange, "Cache-Control", "no-store");
        ash_http_add_header(exchange, "Referrer-Policy", "no-referrer");
        ash_http_add_header(exchange, "X-Content-Type-Options", "nosniff");
    } else {
        ash_str_clear(&body);
    }
    ash_http_respond(exchange, rc == 0 ? 200 : 503, rc == 0 ? "text/html; charset=utf-8" : NULL, &body);
    ash_str_fini(&policy);
    ash_str_fini(&body);
}
