/* The page's parts are files of this folder; they fill the slots of board.html. */
#include "record/page/page.h"

#include "base/assert.h"
#include "base/slots.h"

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

static int write_page(const char *nonce, const char *policy, const char *data, struct ash_str *out)
{
    const struct ash_slot slots[] = {{"nonce", nonce},
                                     {"policy", policy},
                                     {"data", data},
                                     {"css", ash_embed_board_css},
                                     {"places", ash_embed_places_js},
                                     {"curves", ash_embed_curves_js},
                                     {"script", ash_embed_board_js}};

    return ash_slots_fill(ash_embed_board_html, slots, ASH_COUNT(slots), out);
}

int ash_page_write_live(const char *nonce, struct ash_str *out)
{
    return write_page(nonce, "", "", out);
}

int ash_page_write_frozen(const char *data, struct ash_str *out)
{
    struct ash_str json = {0};
    int rc = ash_str_adds(&json, "");

    if (rc == 0) rc = add_script_json(&json, data);
    if (rc == 0) rc = write_page(FROZEN_NONCE, FROZEN_POLICY, json.data, out);
    ash_str_fini(&json);
    return rc;
}
