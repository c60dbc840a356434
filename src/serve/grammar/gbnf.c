/* llama.cpp's GBNF: rules of literals, classes of characters, groups, alternatives and repetitions, drawn while they
 * are read. */
#include "serve/grammar/grammar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/str.h"
#include "base/utf8.h"
#include "serve/grammar/gbnf_priv.h"
#include "serve/grammar/lang_priv.h"
#include "serve/grammar/pda_priv.h"

struct name {
    const char *text;
    size_t size_bytes;
    uint32_t rule;
    size_t line; /* of its definition; 0: none yet */
    size_t used; /* line of its first use */
};

struct gbnf {
    struct ash_pda_draft *draft;
    struct ash_gbnf_source source;
    size_t depth_left;
    struct name *names;
    size_t count, capacity;
    uint32_t *slots;
    size_t slot_count;
};

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static int draw_alternatives(struct gbnf *gbnf, uint32_t from, uint32_t to, bool is_nested);

/* ---- names ------------------------------------------------------------------------------------------------------- */

static int grow_names(struct gbnf *gbnf)
{
    size_t count = gbnf->slot_count > 0 ? 2 * gbnf->slot_count : 64;
    uint32_t *slots = calloc(count, sizeof(*slots));

    if (slots == NULL) return -ENOMEM;
    for (uint32_t i = 0; i < gbnf->count; i++) {
        size_t at = ash_hash_bytes(gbnf->names[i].text, gbnf->names[i].size_bytes, 0) & (count - 1);
        while (slots[at] != 0)
            at = (at + 1) & (count - 1);
        slots[at] = i + 1;
    }
    free(gbnf->slots);
    gbnf->slots = slots;
    gbnf->slot_count = count;
    return 0;
}

/* The name at the cursor, which moves past it; made if it is new. NULL: an error is set. */
static struct name *read_name(struct gbnf *gbnf)
{
    const char *start = gbnf->source.at;
    size_t size, at;

    while (gbnf->source.at < gbnf->source.end && is_name_char(*gbnf->source.at))
        gbnf->source.at++;
    size = (size_t)(gbnf->source.at - start);
    if (size == 0) {
        ash_gbnf_bad(&gbnf->source, "no name of a rule");
        return NULL;
    }
    if ((2 * (gbnf->count + 1) > gbnf->slot_count && grow_names(gbnf) < 0) ||
        ash_array_reserve(&gbnf->names, &gbnf->capacity, gbnf->count + 1, sizeof(*gbnf->names)) < 0) {
        ash_err_set(gbnf->source.err, -ENOMEM, "out of memory for a grammar");
        return NULL;
    }
    at = ash_hash_bytes(start, size, 0) & (gbnf->slot_count - 1);
    for (; gbnf->slots[at] != 0; at = (at + 1) & (gbnf->slot_count - 1)) {
        struct name *name = &gbnf->names[gbnf->slots[at] - 1];
        if (name->size_bytes == size && memcmp(name->text, start, size) == 0) return name;
    }
    gbnf->names[gbnf->count++] = (struct name){
        .text = start, .size_bytes = size, .rule = ash_pda_add_rule(gbnf->draft), .used = gbnf->source.line};
    gbnf->slots[at] = (uint32_t)gbnf->count;
    return &gbnf->names[gbnf->count - 1];
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static int draw_literal(struct gbnf *gbnf, uint32_t from, uint32_t to)
{
    struct ash_str text = {0};
    int rc = 0;

    gbnf->source.at++;
    while (rc == 0 && !ash_gbnf_has(&gbnf->source, '"')) {
        uint32_t point = 0;
        char buf[4];
        rc = ash_gbnf_point(&gbnf->source, &point);
        if (rc == 0 && point >= 0xd800 && point < 0xe000) rc = ash_gbnf_bad(&gbnf->source, "a surrogate");
        if (rc == 0 && ash_str_add(&text, buf, (size_t)ash_utf8_encode(point, buf)) < 0)
            rc = ash_err_set(gbnf->source.err, -ENOMEM, "out of memory for a grammar");
    }
    gbnf->source.at++;
    if (rc == 0) ash_pda_add_text(gbnf->draft, from, to, text.data, text.size_bytes);
    ash_str_fini(&text);
    return rc;
}

static int draw_class(struct gbnf *gbnf, uint32_t from, uint32_t to)
{
    struct ash_lang_set set = {0};
    bool wants_others;
    int rc = 0;

    gbnf->source.at++;
    wants_others = ash_gbnf_has(&gbnf->source, '^');
    gbnf->source.at += wants_others;
    while (rc == 0 && !ash_gbnf_has(&gbnf->source, ']')) {
        uint32_t first = 0, last;
        rc = ash_gbnf_point(&gbnf->source, &first);
        last = first;
        if (rc == 0 && ash_gbnf_has(&gbnf->source, '-') && gbnf->source.end - gbnf->source.at > 1 &&
            gbnf->source.at[1] != ']') {
            gbnf->source.at++;
            rc = ash_gbnf_point(&gbnf->source, &last);
        }
        if (rc == 0 && last < first) rc = ash_gbnf_bad(&gbnf->source, "a range that is the wrong way round, before");
        if (rc == 0 && ash_lang_set_add(&set, first, last) < 0)
            rc = ash_err_set(gbnf->source.err, -ENOMEM, "out of memory for a grammar");
    }
    gbnf->source.at++;
    if (rc == 0 && ash_lang_set_settle(&set, wants_others) < 0)
        rc = ash_err_set(gbnf->source.err, -ENOMEM, "out of memory for a grammar");
    for (size_t i = 0; i < set.count && rc == 0; i++)
        ash_pda_add_points(gbnf->draft, from, to, set.ranges[i][0], set.ranges[i][1]);
    free(set.ranges);
    return rc;
}

static int draw_group(struct gbnf *gbnf, uint32_t from, uint32_t to)
{
    int rc;

    if (gbnf->depth_left == 0) return ash_err_set(gbnf->source.err, -E2BIG, "too many groups in groups");
    gbnf->source.at++;
    gbnf->depth_left--;
    ash_gbnf_skip(&gbnf->source, true);
    rc = draw_alternatives(gbnf, from, to, true);
    gbnf->depth_left++;
    if (rc < 0) return rc;
    if (!ash_gbnf_has(&gbnf->source, ')')) return ash_gbnf_bad(&gbnf->source, "no ')'");
    gbnf->source.at++;
    return 0;
}

/* <name>: a special token by its content, or the same as text. */
static int draw_token(struct gbnf *gbnf, uint32_t from, uint32_t to)
{
    const char *close = memchr(gbnf->source.at, '>', (size_t)(gbnf->source.end - gbnf->source.at));
    size_t size = close != NULL ? (size_t)(close - gbnf->source.at) + 1 : 0;
    uint32_t marked = ash_pda_add_state(gbnf->draft);

    if (size < 3 || memchr(gbnf->source.at, '\n', size) != NULL || ash_utf8_valid_prefix(gbnf->source.at, size) < size)
        return ash_gbnf_bad(&gbnf->source, "a token without '>'");
    if (gbnf->source.at[1] == '[')
        return ash_err_set(gbnf->source.err, -ENOTSUP,
                           "line %zu of the grammar: tokens by id are not supported, write <name>", gbnf->source.line);
    ash_pda_add_bytes(gbnf->draft, from, marked, ASH_VOCAB_SPECIAL_BYTE, ASH_VOCAB_SPECIAL_BYTE);
    ash_pda_add_text(gbnf->draft, marked, to, gbnf->source.at, size);
    ash_pda_add_text(gbnf->draft, from, to, gbnf->source.at, size);
    gbnf->source.at += size;
    return 0;
}

/* 1: an element was drawn; 0: there is none. */
static int draw_element(struct gbnf *gbnf, uint32_t from, uint32_t to)
{
    int rc = 0;

    if (gbnf->source.at == gbnf->source.end) return 0;
    if (*gbnf->source.at == '"') {
        rc = draw_literal(gbnf, from, to);
    } else if (*gbnf->source.at == '[') {
        rc = draw_class(gbnf, from, to);
    } else if (*gbnf->source.at == '(') {
        rc = draw_group(gbnf, from, to);
    } else if (*gbnf->source.at == '<') {
        rc = draw_token(gbnf, from, to);
    } else if (*gbnf->source.at == '.') {
        gbnf->source.at++;
        ash_pda_add_points(gbnf->draft, from, to, 0, ASH_LANG_POINTS - 1);
    } else if (is_name_char(*gbnf->source.at)) {
        const struct name *name = read_name(gbnf);
        if (name == NULL)
            return gbnf->source.err != NULL && gbnf->source.err->code < 0 ? gbnf->source.err->code : -EINVAL;
        ash_pda_add_call(gbnf->draft, from, to, name->rule);
    } else {
        return 0;
    }
    return rc < 0 ? rc : 1;
}

/* ---- repetitions ------------------------------------------------------------------------------------------------- */

/* The states drawn between first and last, as often as the marks after it say, from `from` to `to`. */
static int draw_repeated(struct gbnf *gbnf, uint32_t first, uint32_t last, uint32_t from, uint32_t to)
{
    struct ash_pda_draft *draft = gbnf->draft;

    while (ash_gbnf_has(&gbnf->source, '*') || ash_gbnf_has(&gbnf->source, '+') || ash_gbnf_has(&gbnf->source, '?') ||
           ash_gbnf_has(&gbnf->source, '{')) {
        uint32_t min = ash_gbnf_has(&gbnf->source, '+') ? 1 : 0,
                 max = ash_gbnf_has(&gbnf->source, '?') ? 1 : ASH_PDA_UNBOUNDED;
        uint32_t rule = ash_pda_add_rule(draft), before = ash_pda_add_state(draft), after = ash_pda_add_state(draft);
        int rc = 0;
        if (ash_gbnf_has(&gbnf->source, '{'))
            rc = ash_gbnf_braces(&gbnf->source, &min, &max);
        else
            gbnf->source.at++;
        if (rc < 0) return rc;
        ash_pda_add_empty(draft, ash_pda_rule_start(draft, rule), first);
        ash_pda_add_empty(draft, last, ash_pda_rule_end(draft, rule));
        ash_pda_add_repeat(draft, before, after, rule, min, max);
        first = before;
        last = after;
        ash_gbnf_skip(&gbnf->source, false);
    }
    ash_pda_add_empty(draft, from, first);
    ash_pda_add_empty(draft, last, to);
    return 0;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static int draw_sequence(struct gbnf *gbnf, uint32_t from, uint32_t to, bool is_nested)
{
    struct ash_pda_draft *draft = gbnf->draft;

    for (;;) {
        uint32_t first = ash_pda_add_state(draft), last = ash_pda_add_state(draft), after = ash_pda_add_state(draft);
        int rc = draw_element(gbnf, first, last);
        if (rc < 0) return rc;
        if (rc == 0) break;
        ash_gbnf_skip(&gbnf->source, is_nested);
        rc = draw_repeated(gbnf, first, last, from, after);
        if (rc == 0) rc = ash_pda_draft_check(draft, gbnf->source.err);
        if (rc < 0) return rc;
        ash_gbnf_skip(&gbnf->source, is_nested);
        from = after;
    }
    ash_pda_add_empty(draft, from, to);
    return 0;
}

static int draw_alternatives(struct gbnf *gbnf, uint32_t from, uint32_t to, bool is_nested)
{
    int rc = draw_sequence(gbnf, from, to, is_nested);

    while (rc == 0 && ash_gbnf_has(&gbnf->source, '|')) {
        gbnf->source.at++;
        ash_gbnf_skip(&gbnf->source, true);
        rc = draw_sequence(gbnf, from, to, is_nested);
    }
    return rc;
}

static int draw_rule(struct gbnf *gbnf)
{
    struct name *name = read_name(gbnf);
    uint32_t rule;
    int rc;

    if (name == NULL) return gbnf->source.err != NULL && gbnf->source.err->code < 0 ? gbnf->source.err->code : -EINVAL;
    if (name->line > 0)
        return ash_err_set(gbnf->source.err, -EINVAL,
                           "line %zu of the grammar: rule '%.*s' was defined in line %zu already", gbnf->source.line,
                           (int)name->size_bytes, name->text, name->line);
    name->line = gbnf->source.line;
    rule = name->rule;
    ash_gbnf_skip(&gbnf->source, false);
    if (gbnf->source.end - gbnf->source.at < 3 || memcmp(gbnf->source.at, "::=", 3) != 0)
        return ash_gbnf_bad(&gbnf->source, "no '::='");
    gbnf->source.at += 3;
    ash_gbnf_skip(&gbnf->source, true);
    rc = ash_pda_draft_check(gbnf->draft, gbnf->source.err);
    if (rc == 0)
        rc = draw_alternatives(gbnf, ash_pda_rule_start(gbnf->draft, rule), ash_pda_rule_end(gbnf->draft, rule), false);
    if (rc < 0) return rc;
    if (gbnf->source.at < gbnf->source.end && *gbnf->source.at != '\n' && *gbnf->source.at != '\r')
        return ash_gbnf_bad(&gbnf->source, "something unexpected");
    ash_gbnf_skip(&gbnf->source, true);
    return 0;
}

/* The rule `root`; all rules must have been defined. */
static int find_root(const struct gbnf *gbnf, uint32_t *root_out)
{
    bool has_root = false;

    for (size_t i = 0; i < gbnf->count; i++) {
        const struct name *name = &gbnf->names[i];
        if (name->line == 0)
            return ash_err_set(gbnf->source.err, -EINVAL, "line %zu of the grammar: rule '%.*s' is not defined",
                               name->used, (int)name->size_bytes, name->text);
        if (name->size_bytes != 4 || memcmp(name->text, "root", 4) != 0) continue;
        *root_out = name->rule;
        has_root = true;
    }
    return has_root ? 0 : ash_err_set(gbnf->source.err, -EINVAL, "the grammar has no rule 'root'");
}

/* Names by rule, for messages; NULL when out of memory. Each is the caller's. */
static char **rule_names(const struct gbnf *gbnf)
{
    char **names = calloc(gbnf->draft->rule_count + 1, sizeof(char *));

    for (size_t i = 0; names != NULL && i < gbnf->count; i++)
        names[gbnf->names[i].rule] = strndup(gbnf->names[i].text, gbnf->names[i].size_bytes);
    return names;
}

static int compile(struct gbnf *gbnf, struct ash_pda **pda_out)
{
    uint32_t root = 0;
    char **names;
    int rc = 0;

    ash_gbnf_skip(&gbnf->source, true);
    while (rc == 0 && gbnf->source.at < gbnf->source.end)
        rc = draw_rule(gbnf);
    if (rc == 0) rc = ash_pda_draft_check(gbnf->draft, gbnf->source.err);
    if (rc == 0) rc = find_root(gbnf, &root);
    if (rc < 0) return rc;
    names = rule_names(gbnf);
    rc = ash_pda_finish(gbnf->draft, root, (const char *const *)names, pda_out, gbnf->source.err);
    for (size_t i = 0; names != NULL && i < gbnf->draft->rule_count; i++)
        free(names[i]);
    free(names);
    return rc;
}

int ash_grammar_from_gbnf(const char *text, size_t size_bytes, const struct ash_grammar_opts *opts,
                          struct ash_grammar **grammar_out, struct ash_err *err)
{
    struct ash_grammar_limits limits = opts != NULL ? opts->limits : ash_grammar_default_limits();
    struct ash_err own = {0};
    struct gbnf gbnf = {.source = {.at = text, .end = text + size_bytes, .line = 1, .err = err != NULL ? err : &own}};
    struct ash_pda *pda = NULL;
    int rc;

    if (size_bytes > limits.source_bytes)
        return ash_err_set(err, -E2BIG, "a grammar of %zu bytes is longer than the limit of %zu", size_bytes,
                           limits.source_bytes);
    gbnf.depth_left = limits.depth;
    gbnf.draft = ash_pda_draft_open(&limits);
    rc = gbnf.draft == NULL ? ash_err_set(err, -ENOMEM, "out of memory for a grammar") : compile(&gbnf, &pda);
    ash_pda_draft_close(gbnf.draft);
    free(gbnf.names);
    free(gbnf.slots);
    return rc < 0 ? rc : ash_grammar_from_pda(pda, &limits, grammar_out, err);
}
