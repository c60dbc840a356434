/* GET /: the chat page. Its parts are files of this folder (page.html, page.css, markdown.js, page.js). */
#include "serve/page/page.h"

#include "base/assert.h"
#include "base/slots.h"

extern const char ash_embed_page_html[], ash_embed_page_css[], ash_embed_markdown_js[], ash_embed_page_js[];

static int write_page(const char *nonce, struct ash_str *out)
{
    const struct ash_slot slots[] = {{"nonce", nonce},
                                     {"css", ash_embed_page_css},
                                     {"markdown", ash_embed_markdown_js},
                                     {"script", ash_embed_page_js}};

    return ash_slots_fill(ash_embed_page_html, slots, ASH_COUNT(slots), out);
}

void ash_page_respond(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    ash_http_respond_page(exchange, write_page);
}
