/* GET /: the chat page. Its parts are files of this folder (page.html, page.css, markdown.js, page.js), joined here. A
 * browser runs and paints what carries this response's nonce, talks to this server and loads nothing; the page writes
 * no HTML text (trusted types), so what a model writes stays text. */
#include "serve/page/page.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "base/assert.h"

extern const char ash_embed_page_html[], ash_embed_page_css[], ash_embed_markdown_js[], ash_embed_page_js[];

#define NONCE_BYTES 16
#define POLICY                                                                                                         \
    "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; img-src data:; "             \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "                \
    "trusted-types 'none'"

/* What {{name}} in page.html stands for. */
struct slot {
    const char *name, *text;
};

/* Append page.html with its slots filled. What fills one is not looked at. */
static int join(const struct slot *slots, size_t count, struct ash_str *out)
{
    const char *at = ash_embed_page_html;
    int rc = 0;

    for (const char *open = strstr(at, "{{"); open != NULL && rc == 0; open = strstr(at, "{{")) {
        const char *end = strstr(open, "}}");
        size_t bytes = end != NULL ? (size_t)(end - open) - 2 : 0, i = 0;

        while (i < count && (strlen(slots[i].name) != bytes || strncmp(slots[i].name, open + 2, bytes) != 0))
            i++;
        ash_assert(end != NULL && i < count);
        rc = ash_str_add(out, at, (size_t)(open - at));
        if (rc == 0) rc = ash_str_adds(out, slots[i].text);
        at = end + 2;
    }
    return rc == 0 ? ash_str_adds(out, at) : rc;
}

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

void ash_page_respond(void *ctx, struct ash_http_exchange *exchange)
{
    char nonce[2 * NONCE_BYTES + 1];
    const struct slot slots[] = {{"nonce", nonce},
                                 {"css", ash_embed_page_css},
                                 {"markdown", ash_embed_markdown_js},
                                 {"script", ash_embed_page_js}};
    struct ash_str body = {0}, policy = {0};
    int rc = make_nonce(nonce);

    (void)ctx;
    if (rc == 0) rc = ash_str_addf(&policy, POLICY, nonce, nonce);
    if (rc == 0) rc = join(slots, ASH_COUNT(slots), &body);
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
