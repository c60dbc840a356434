/* The page's parts are files of this folder, joined here: slots between {{ and }} in board.html are replaced. */
#include "record/page/page.h"

#include <string.h>

#include "base/assert.h"

extern const char ash_embed_board_html[], ash_embed_board_css[], ash_embed_board_js[], ash_embed_curves_js[],
    ash_embed_places_js[];

/* A frozen page's own policy: it runs its own scripts and makes no requests. Its data cannot become a script (see
 * add_script_json), so the nonce need not be secret. */
#define FROZEN_NONCE "frozen"
#define FROZEN_POLICY                                                                                                  \
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-" FROZEN_NONCE       \
    "'; style-src 'nonce-" FROZEN_NONCE "'; base-uri 'none'; form-action 'none'\">"

/* JSON inside <script>: no text may look like the end of the element. */
static int add_script_json(struct ash_str *page, const char *text)
{
    int rc = 0;

    for (const char *at = text; *at != '\0' && rc == 0; at++)
        rc = *at == '<' ? ash_str_adds(page, "\\u003c") : ash_str_add(page, at, 1);
    return rc;
}

/* Fill a slot of the page. */
static int fill_slot(const char *name, size_t name_bytes, const char *nonce, const char *data, struct ash_str *out)
{
    const struct {
        const char *name, *text;
    } slots[] = {{"nonce", nonce},
                 {"policy", data != NULL ? FROZEN_POLICY : ""},
                 {"css", ash_embed_board_css},
                 {"places", ash_embed_places_js},
                 {"curves", ash_embed_curves_js},
                 {"script", ash_embed_board_js}};

    if (strncmp("data", name, name_bytes) == 0) return data != NULL ? add_script_json(out, data) : 0;
    for (size_t i = 0; i < ASH_COUNT(slots); i++)
        if (strncmp(slots[i].name, name, name_bytes) == 0) return ash_str_adds(out, slots[i].text);
    ash_assert(!"a slot of the page has no text");
    return 0;
}

static int join(const char *nonce, const char *data, struct ash_str *out)
{
    const char *at = ash_embed_board_html;
    int rc = 0;

    for (const char *open = strstr(at, "{{"); open != NULL && rc == 0; open = strstr(at, "{{")) {
        const char *end = strstr(open, "}}");

        ash_assert(end != NULL);
        rc = ash_str_add(out, at, (size_t)(open - at));
        if (rc == 0) rc = fill_slot(open + 2, (size_t)(end - open) - 2, nonce, data, out);
        at = end + 2;
    }
    return rc == 0 ? ash_str_adds(out, at) : rc;
}

int ash_page_write_live(const char *nonce, struct ash_str *out)
{
    return join(nonce, NULL, out);
}

int ash_page_write_frozen(const char *data, struct ash_str *out)
{
    return join(FROZEN_NONCE, data, out);
}
