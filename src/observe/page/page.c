/* The page's parts are files of this folder, joined here. A browser runs and paints what carries this response's nonce
 * and talks to this server alone; the page writes no HTML text (trusted types), so what a log says stays text. */
#include "observe/page/page.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "base/assert.h"

extern const char ash_embed_board_html[], ash_embed_board_css[], ash_embed_board_js[];

#define NONCE_BYTES 16
#define POLICY                                                                                                         \
    "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; base-uri 'none'; "           \
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

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

/* board.html with {{name}} replaced. What fills a slot is not looked at. */
static int join(const char *nonce, struct ash_str *out)
{
    const struct {
        const char *name, *text;
    } slots[] = {{"nonce", nonce}, {"css", ash_embed_board_css}, {"script", ash_embed_board_js}, {"data", ""}};
    const char *at = ash_embed_board_html;
    int rc = 0;

    for (const char *open = strstr(at, "{{"); open != NULL && rc == 0; open = strstr(at, "{{")) {
        const char *end = strstr(open, "}}");
        size_t i = 0;

        ash_assert(end != NULL);
        while (i < ASH_COUNT(slots) && strncmp(slots[i].name, open + 2, (size_t)(end - open) - 2) != 0)
            i++;
        ash_assert(i < ASH_COUNT(slots));
        rc = ash_str_add(out, at, (size_t)(open - at));
        if (rc == 0) rc = ash_str_adds(out, slots[i].text);
        at = end + 2;
    }
    return rc == 0 ? ash_str_adds(out, at) : rc;
}

void ash_board_page_respond(void *ctx, struct ash_http_exchange *exchange)
{
    char nonce[2 * NONCE_BYTES + 1];
    struct ash_str body = {0}, policy = {0};
    int rc = make_nonce(nonce);

    (void)ctx;
    if (rc == 0) rc = ash_str_addf(&policy, POLICY, nonce, nonce);
    if (rc == 0) rc = join(nonce, &body);
    if (rc == 0) {
        ash_http_add_header(exchange, "Content-Security-Policy", policy.data);
        ash_http_add_header(exchange, "Cache-Control", "no-store");
        ash_http_add_header(exchange, "Referrer-Policy", "no-referrer");
    } else {
        ash_str_clear(&body);
    }
    ash_http_respond(exchange, rc == 0 ? 200 : 503, rc == 0 ? "text/html; charset=utf-8" : NULL, &body);
    ash_str_fini(&policy);
}
