/* Pre-tokenizers: each cuts the pieces that the one before made. Piece by piece down to the words, so nothing is ever
 * listed: a step hands each piece to the next step as soon as it has it, and the last hands words to the model. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

/* What ByteLevel cuts by when use_regex is on: GPT-2's words. */
#define GPT2_WORDS "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int load_behavior(struct ash_tok_pre *pre, const json_t *step, struct ash_err *err)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = NULL;
    int rc = ash_json_string(step, "behavior", &name, err);

    if (rc <= 0) return rc;
    for (size_t i = 0; i < ASH_COUNT(names); i++) {
        if (strcmp(name, names[i]) != 0) continue;
        pre->behavior = (enum ash_tok_behavior)i;
        return 1;
    }
    return ash_err_set(err, -ENOTSUP, "behavior '%.64s' is not supported", name);
}

static int load_split(struct ash_tok_pre *pre, const json_t *step, struct ash_err *err)
{
    int rc = ash_tok_pattern_load(&pre->pattern, step, err);

    if (rc >= 0) rc = ash_json_bool(step, "invert", &pre->invert, err);
    if (rc >= 0) rc = load_behavior(pre, step, err);
    return rc == 0 ? ash_err_set(err, -EINVAL, "'behavior' is missing") : rc;
}

static int load_byte_level(struct ash_tok_pre *pre, const json_t *step, struct ash_err *err)
{
    int rc;

    pre->kind = ASH_TOK_BYTE_LEVEL;
    pre->splits = true;
    pre->prefix_space = true;
    rc = ash_json_bool(step, "use_regex", &pre->splits, err);
    if (rc >= 0) rc = ash_json_bool(step, "add_prefix_space", &pre->prefix_space, err);
    if (rc >= 0 && pre->splits) rc = ash_tok_pattern_regex(&pre->pattern, GPT2_WORDS, err);
    return rc;
}

static int load_digits(struct ash_tok_pre *pre, const json_t *step, struct ash_err *err)
{
    bool individual = false;
    int rc = ash_json_bool(step, "individual_digits", &individual, err);

    pre->pattern.kind = ASH_TOK_NUMERIC;
    pre->behavior = individual ? ASH_TOK_ISOLATED : ASH_TOK_CONTIGUOUS;
    return rc;
}

static int load_punctuation(struct ash_tok_pre *pre, const json_t *step, struct ash_err *err)
{
    pre->pattern.kind = ASH_TOK_PUNCTUATION;
    return load_behavior(pre, step, err);
}

static int load_spaces(struct ash_tok_pre *pre, const json_t *step, struct ash_err *err)
{
    (void)step;
    pre->behavior = ASH_TOK_REMOVED;
    return ash_tok_pattern_regex(&pre->pattern, "\\s+", err);
}

static int load_prepend(struct ash_tok_pre *pre, const json_t *step, struct ash_err *err)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name = "always";
    bool prefix = true;
    int rc = ash_json_string(step, "prepend_scheme", &name, err);

    if (rc >= 0) rc = ash_json_bool(step, "add_prefix_space", &prefix, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < ASH_COUNT(names); i++) {
        if (strcmp(name, names[i]) != 0) continue;
        pre->prepend = (enum ash_tok_prepend)i;
        if (!prefix && pre->prepend != ASH_TOK_PREPEND_NEVER)
            return ash_err_set(err, -EINVAL, "add_prefix_space false and prepend_scheme '%s' contradict each other",
                               name);
        return 0;
    }
    return ash_err_set(err, -ENOTSUP, "prepend_scheme '%.64s' is not supported", name);
}

static int load_metaspace(struct ash_tok_pre *pre, const json_t *step, struct ash_err *err)
{
    const char *mark = NULL;
    uint32_t point;
    int rc = ash_json_string(step, "replacement", &mark, err);

    pre->kind = ASH_TOK_METASPACE;
    pre->behavior = ASH_TOK_MERGED_NEXT;
    pre->splits = true;
    if (rc < 0) return rc;
    if (mark == NULL || mark[0] == '\0' || ash_utf8_decode(mark, strlen(mark), &point) != (int)strlen(mark))
        return ash_err_set(err, -EINVAL, "'replacement' must be one character");
    rc = ash_tok_pattern_literal(&pre->pattern, mark, strlen(mark), err);
    if (rc >= 0) rc = load_prepend(pre, step, err);
    if (rc >= 0) rc = ash_json_bool(step, "split", &pre->splits, err);
    return rc;
}

static int load_step(void *ctx, const json_t *step, const char *type, struct ash_err *err)
{
    static const struct {
        const char *type;
        int (*load)(struct ash_tok_pre *pre, const json_t *step, struct ash_err *err);
    } kinds[] = {
        {"Split", load_split},         {"ByteLevel", load_byte_level},    {"Digits", load_digits},
        {"Metaspace", load_metaspace}, {"Punctuation", load_punctuation}, {"WhitespaceSplit", load_spaces},
    };
    struct ash_tok_pres *pres = ctx;

    if (pres->count + 2 > ASH_TOK_STEPS_MAX)
        return ash_err_set(err, -E2BIG, "more than %d steps", ASH_TOK_STEPS_MAX - 1);
    if (strcmp(type, "BertPreTokenizer") == 0) { /* words, then each punctuation mark by itself */
        int rc = load_spaces(&pres->steps[pres->count++], step, err);

        return rc < 0 ? rc : load_punctuation(&pres->steps[pres->count++], step, err);
    }
    for (size_t i = 0; i < ASH_COUNT(kinds); i++)
        if (strcmp(type, kinds[i].type) == 0) return kinds[i].load(&pres->steps[pres->count++], step, err);
    return ash_err_set(err, -ENOTSUP, "type '%.64s' is not supported", type);
}

int ash_tok_pres_load(struct ash_tok_pres *pres, const json_t *root, struct ash_err *err)
{
    return ash_tok_each_step(json_object_get(root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers", load_step, pres,
                             err);
}

void ash_tok_pres_fini(struct ash_tok_pres *pres)
{
    for (size_t i = 0; i < pres->count; i++)
        ash_tok_pattern_fini(&pres->steps[i].pattern);
    pres->count = 0;
}

bool ash_tok_pres_end_in_bytes(const struct ash_tok_pres *pres)
{
    for (size_t i = 0; i + 1 < pres->count; i++)
        if (pres->steps[i].kind == ASH_TOK_BYTE_LEVEL) return false;
    return pres->count > 0 && pres->steps[pres->count - 1].kind == ASH_TOK_BYTE_LEVEL;
}

void ash_tok_pres_set_raw(struct ash_tok_pres *pres, bool raw_bytes)
{
    for (size_t i = 0; i < pres->count; i++)
        pres->steps[i].map = pres->steps[i].kind == ASH_TOK_BYTE_LEVEL && !raw_bytes;
}

/* ---- cutting ----------------------------------------------------------------------------------------------------- */

/* A step at work on one piece. */
struct cutter {
    struct ash_tok_run *run;
    size_t step;
    struct ash_tok_span text;
    bool at_start;
    bool previous_match;
    bool pending; /* [start, end) waits for what may join it */
    size_t start, end;
};

static int run_step(struct ash_tok_run *run, size_t step, struct ash_tok_span piece, bool at_start);

/* Pass [start, end) to the next step. */
static int pass_on(const struct cutter *cutter, size_t start, size_t end)
{
    const struct ash_tok_pre *pre = &cutter->run->tokenizer->pres.steps[cutter->step];
    struct ash_tok_span piece = {cutter->text.data + start, end - start};
    bool at_start = cutter->at_start && start == 0;
    struct ash_str *mapped;
    int rc;

    if (start == end) return 0;
    if (!pre->map) return run_step(cutter->run, cutter->step + 1, piece, at_start);
    mapped = &cutter->run->scratch->mapped[cutter->step];
    ash_str_clear(mapped);
    rc = ash_tok_bytes_map(mapped, piece.data, piece.size_bytes);
    if (rc < 0) return rc;
    rc = ash_tok_scratch_check(cutter->run->scratch, mapped, cutter->run->err);
    if (rc < 0) return rc;
    return run_step(cutter->run, cutter->step + 1, (struct ash_tok_span){mapped->data, mapped->size_bytes}, at_start);
}

/* Let what waits go, and let [start, end) wait in its place. */
static int replace_pending(struct cutter *cutter, size_t start, size_t end)
{
    int rc = cutter->pending ? pass_on(cutter, cutter->start, cutter->end) : 0;

    cutter->pending = true;
    cutter->start = start;
    cutter->end = end;
    return rc;
}

/* The next stretch of the text is a match of the pattern, or lies between two. */
static int take(struct cutter *cutter, enum ash_tok_behavior behavior, size_t start, size_t end, bool is_match)
{
    bool previous = cutter->previous_match, joins = false;

    cutter->previous_match = is_match;
    switch (behavior) {
    case ASH_TOK_ISOLATED:
        return pass_on(cutter, start, end);
    case ASH_TOK_REMOVED:
        return is_match ? 0 : pass_on(cutter, start, end);
    case ASH_TOK_MERGED_PREVIOUS:
        joins = is_match && !previous;
        break;
    case ASH_TOK_MERGED_NEXT:
        joins = previous && !is_match;
        break;
    case ASH_TOK_CONTIGUOUS:
        joins = is_match == previous;
        break;
    }
    if (!joins || !cutter->pending) return replace_pending(cutter, start, end);
    cutter->end = end;
    return 0;
}

static int cut(struct cutter *cutter, const struct ash_tok_pre *pre)
{
    struct ash_tok_run *run = cutter->run;
    struct ash_tok_finder finder = ash_tok_finder_make(&pre->pattern, run->scratch, cutter->text);
    size_t done = 0, start, end;
    int rc;

    while ((rc = ash_tok_finder_next(&finder, &start, &end, run->err)) > 0) {
        if (start > done) rc = take(cutter, pre->behavior, done, start, pre->invert);
        if (rc >= 0) rc = take(cutter, pre->behavior, start, end, !pre->invert);
        if (rc < 0) return rc;
        done = end;
    }
    if (rc == 0 && done < cutter->text.size_bytes)
        rc = take(cutter, pre->behavior, done, cutter->text.size_bytes, pre->invert);
    if (rc == 0 && cutter->pending) rc = pass_on(cutter, cutter->start, cutter->end);
    return rc;
}

/* ---- rewriting before the cut ------------------------------------------------------------------------------------ */

/* The piece after a space, for a ByteLevel that wants one. */
static int prefix_space(struct ash_str *to, struct ash_tok_span *piece)
{
    if (piece->data[0] == ' ') return 0;
    ash_str_clear(to);
    if (ash_str_add(to, " ", 1) < 0 || ash_str_add(to, piece->data, piece->size_bytes) < 0) return -ENOMEM;
    *piece = (struct ash_tok_span){to->data, to->size_bytes};
    return 0;
}

static bool starts_with(struct ash_tok_span text, const struct ash_str *prefix)
{
    return text.size_bytes >= prefix->size_bytes && memcmp(text.data, prefix->data, prefix->size_bytes) == 0;
}

/* Spaces become the mark, and one goes in front where the scheme says so. */
static int mark_spaces(const struct ash_tok_pre *pre, struct ash_str *to, struct ash_tok_span *piece, bool at_start)
{
    const struct ash_str *mark = &pre->pattern.text;
    bool has_mark = piece->data[0] == ' ' || starts_with(*piece, mark);
    int rc = 0;

    ash_str_clear(to);
    if (!has_mark && (pre->prepend == ASH_TOK_PREPEND_ALWAYS || (pre->prepend == ASH_TOK_PREPEND_FIRST && at_start)))
        rc = ash_str_add(to, mark->data, mark->size_bytes);
    for (size_t at = 0; rc == 0 && at < piece->size_bytes;) {
        const char *space = memchr(piece->data + at, ' ', piece->size_bytes - at);
        size_t end = space != NULL ? (size_t)(space - piece->data) : piece->size_bytes;
        rc = ash_str_add(to, piece->data + at, end - at);
        if (rc == 0 && space != NULL) rc = ash_str_add(to, mark->data, mark->size_bytes);
        at = end + 1;
    }
    *piece = (struct ash_tok_span){to->data, to->size_bytes};
    return rc;
}

static int run_step(struct ash_tok_run *run, size_t step, struct ash_tok_span piece, bool at_start)
{
    const struct ash_tok_pres *pres = &run->tokenizer->pres;
    const struct ash_tok_pre *pre = &pres->steps[step];
    struct cutter cutter = {.run = run, .step = step, .at_start = at_start};
    struct ash_str *rewritten = &run->scratch->steps[step];
    int rc = 0;

    if (step == pres->count && run->word != NULL) return run->word(run->word_ctx, piece.data, piece.size_bytes);
    if (step == pres->count)
        return ash_tok_model_encode(&run->tokenizer->model, run->scratch, piece, run->ids, run->err);
    if (piece.size_bytes == 0) return 0;
    if (pre->kind == ASH_TOK_BYTE_LEVEL && pre->prefix_space) rc = prefix_space(rewritten, &piece);
    if (pre->kind == ASH_TOK_METASPACE) rc = mark_spaces(pre, rewritten, &piece, at_start);
    if (rc < 0) return rc;
    rc = ash_tok_scratch_check(run->scratch, rewritten, run->err);
    if (rc < 0) return rc;
    cutter.text = piece;
    if (pre->kind != ASH_TOK_SPLIT && !pre->splits) return pass_on(&cutter, 0, piece.size_bytes);
    return cut(&cutter, pre);
}

int ash_tok_pres_encode(struct ash_tok_run *run, struct ash_tok_span piece, bool at_start)
{
    return run_step(run, 0, piece, at_start);
}
