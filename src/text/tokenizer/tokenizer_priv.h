/* tokenizer_priv - what the files of this folder share. The way of a text: added tokens are cut out (added), the rest
 * is normalized (normalize, bert), cut into words (pretokenize, pattern), each word becomes ids (bpe, wordpiece),
 * special ids go around them (postprocess). decode turns ids into text. A `tok` file never logs and never asserts on
 * input. */
#ifndef ASH_TEXT_TOKENIZER_PRIV_H
#define ASH_TEXT_TOKENIZER_PRIV_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/str.h"
#include "text/tokenizer/scratch_priv.h"
#include "text/tokenizer/tokenizer.h"

#define ASH_TOK_ID_MAX ((1 << 22) - 1)            /* the largest id that a file may use */
#define ASH_TOK_NESTING_MAX 8                     /* sequences inside sequences */
#define ASH_TOK_TEXT_BYTES_MAX ((size_t)1 << 30)  /* of one encode call */
#define ASH_TOK_PATTERN_BYTES_MAX ((size_t)16384) /* of one regular expression */
#define ASH_TOK_GROWTH_MAX ((size_t)16)           /* of a text under normalizers and pre-tokenizers, plus */
#define ASH_TOK_GROWTH_BYTES ((size_t)4096)       /* a few bytes more */

/* Borrowed bytes. */
struct ash_tok_span {
    const char *data;
    size_t size_bytes;
};
struct ash_tok_scratch;

/* ---- vocab: the model's tokens by content and by id -------------------------------------------------------------- */

struct ash_tok_entry {
    const char *content; /* NUL-terminated, NULL where no token has this id */
    uint32_t size_bytes;
    int32_t added; /* index among the added tokens, -1 for none */
};

struct ash_tok_vocab {
    char *bytes;                   /* all contents of the model's tokens */
    size_t used_bytes;             /* of bytes */
    struct ash_tok_entry *entries; /* [entry_count], by id; grows when added tokens bring larger ids */
    size_t entry_count;
    size_t token_count; /* of the model alone */
    int32_t *slots;     /* open addressing over the model's contents: id or -1 */
    size_t slot_mask;
};

/* Read "vocab". On error vocab holds what fini frees. */
int ash_tok_vocab_load(struct ash_tok_vocab *vocab, const json_t *object, struct ash_err *err);
/* The same by hand: make room for count tokens of `bytes` bytes in all and ids up to id_max, then put each. Two tokens
 * of one id, or one token of two, are -EINVAL. */
int ash_tok_vocab_reserve(struct ash_tok_vocab *vocab, size_t count, size_t bytes, int32_t id_max, struct ash_err *err);
/* Add a token; there is room for it since reserve. -EINVAL as above. */
int ash_tok_vocab_put(struct ash_tok_vocab *vocab, int32_t id, const char *content, size_t size_bytes,
                      struct ash_err *err);
/* Free what load or reserve took. */
void ash_tok_vocab_fini(struct ash_tok_vocab *vocab);
/* The id that the model gives this content, or -1. Added tokens are not looked at. */
int32_t ash_tok_vocab_find(const struct ash_tok_vocab *vocab, const char *content, size_t size_bytes);
/* Let entries reach id, filled with "no token". 0 or -ENOMEM. */
int ash_tok_vocab_reach(struct ash_tok_vocab *vocab, int32_t id);

/* ---- merges: which two neighbours become one, and how early ------------------------------------------------------ */

#define ASH_TOK_NO_RANK UINT32_MAX

struct ash_tok_merge {
    uint32_t left, right, rank, result; /* rank ASH_TOK_NO_RANK: an empty slot */
};

struct ash_tok_merges {
    struct ash_tok_merge *slots;
    int shift; /* 64 less the bits of a slot number */
    size_t mask, count;
};

/* Read "merges", in the order of their ranks. A half or a result that is no token is -EINVAL. */
int ash_tok_merges_load(struct ash_tok_merges *merges, const struct ash_tok_vocab *vocab, const json_t *array,
                        struct ash_err *err);
/* The same by hand: make room for count merges, then put each, or add the next in rank by its two halves (joined is
 * scratch). */
int ash_tok_merges_reserve(struct ash_tok_merges *merges, size_t count, struct ash_err *err);
/* Add a merge; there is room for it since reserve. */
void ash_tok_merges_put(struct ash_tok_merges *merges, struct ash_tok_merge merge);
/* Add the merge of the next rank by its two halves; joined is scratch. */
int ash_tok_merges_add(struct ash_tok_merges *merges, const struct ash_tok_vocab *vocab,
                       const struct ash_tok_span half[2], struct ash_str *joined, struct ash_err *err);
/* Free what load or reserve took. */
void ash_tok_merges_fini(struct ash_tok_merges *merges);
/* The slot of a pair: its merge, or an empty one. */
const struct ash_tok_merge *ash_tok_merges_find(const struct ash_tok_merges *merges, uint32_t left, uint32_t right);

/* ---- bpe: one word to ids ---------------------------------------------------------------------------------------- */

struct ash_tok_points; /* code points to ids */
struct ash_tok_pairs;  /* code points between which some merge can happen */

struct ash_tok_model {
    struct ash_tok_vocab vocab;
    struct ash_tok_merges merges;
    bool byte_level;               /* a word is raw bytes whose symbols are the byte-level characters */
    bool is_word_piece;            /* no merges: the longest token that a word begins with, then of the rest, */
    struct ash_str subword_prefix; /* with this before it, */
    size_t word_chars_max;         /* of words that are not longer */
    double *scores;                /* unigram: [vocab.token_count] by id; NULL: another kind */
    double unknown_score;          /* of a character that no token spells */
    bool keeps_floats;             /* scores of paths are kept as float32, as SentencePiece does */
    size_t longest_bytes;          /* of its tokens */
    bool fuse_unknown, byte_fallback, ignore_merges;
    bool has_unknown;   /* an unk_token is named, and */
    int32_t unknown_id; /* its id, or -1 when the vocabulary lacks it */
    int32_t bytes[256]; /* byte_level: the symbol of a byte; otherwise the <0x..> token of a byte; -1 for none */
    bool all_bytes;     /* every byte has its token, so nothing is ever unknown */
    struct ash_tok_points *points;
    struct ash_tok_pairs *pairs;
};

/* Read "model" into a zeroed struct. byte_level: the pre-tokenizer ends in ByteLevel, words come as bytes. */
int ash_tok_model_load(struct ash_tok_model *model, const json_t *object, bool byte_level, struct ash_err *err);
/* The end of loading, once vocab, merges and switches are set: what follows from them. unknown:
 * the unk_token, or NULL. */
int ash_tok_model_finish(struct ash_tok_model *model, const char *unknown, bool byte_level, struct ash_err *err);
/* Free all of it; a zeroed struct is a no-op. */
void ash_tok_model_fini(struct ash_tok_model *model);
/* Append the ids of one word (valid UTF-8, or for byte_level any bytes). 0, -ENOMEM or -EINVAL. */
int ash_tok_model_encode(const struct ash_tok_model *model, struct ash_tok_scratch *scratch, struct ash_tok_span word,
                         struct ash_ids *ids, struct ash_err *err);

/* wordpiece.c: the same of a word of a word-piece model. */
int ash_tok_word_piece_encode(const struct ash_tok_model *model, struct ash_tok_scratch *scratch,
                              struct ash_tok_span word, struct ash_ids *ids, struct ash_err *err);

/* Take spaces out of a decoded token as BERT's decoder does: before English punctuation and short forms. 0 or
 * -ENOMEM. */
int ash_tok_word_piece_clean(struct ash_str *token);

/* Which characters may a merge join? Texts can be cut wherever none can. NULL when out of memory. */
struct ash_tok_pairs *ash_tok_pairs_open(const struct ash_tok_model *model);
/* NULL is a no-op. */
void ash_tok_pairs_close(struct ash_tok_pairs *pairs);
/* May a merge join a token that ends in left with one that begins with right? */
bool ash_tok_pairs_has(const struct ash_tok_pairs *pairs, uint32_t left, uint32_t right);
/* The ids of tokens that are one character. NULL when out of memory. */
struct ash_tok_points *ash_tok_points_open(const struct ash_tok_vocab *vocab);
/* NULL is a no-op. */
void ash_tok_points_close(struct ash_tok_points *points);
/* The id of the token that is this character, or -1. */
int32_t ash_tok_points_find(const struct ash_tok_points *points, uint32_t point);

/* ---- byte level: the 256 characters that stand for bytes --------------------------------------------------------- */

/* The character of a byte, U+0021 to U+0143. */
uint32_t ash_tok_byte_to_point(uint8_t byte);
/* The byte of a character, or -1. */
int ash_tok_byte_from_point(uint32_t point);
/* Append text with every byte replaced by its character. 0 or -ENOMEM. */
int ash_tok_bytes_map(struct ash_str *out, const char *text, size_t size_bytes);

/* ---- pattern: where to cut --------------------------------------------------------------------------------------- */

enum ash_tok_pattern_kind { ASH_TOK_REGEX, ASH_TOK_LITERAL, ASH_TOK_NUMERIC, ASH_TOK_PUNCTUATION };

struct ash_tok_pattern {
    enum ash_tok_pattern_kind kind;
    pcre2_code *code; /* regex */
    bool jit;
    struct ash_str text; /* the literal, or the expression as the file has it */
};

/* A walk over the matches of a pattern in one text. */
struct ash_tok_finder {
    const struct ash_tok_pattern *pattern;
    struct ash_tok_scratch *scratch;
    struct ash_tok_span text;
    size_t at, last_end;
    bool has_last;
    uint32_t step_limit;
};

/* Compile an expression of the file into a zeroed pattern; on error fini frees it. */
int ash_tok_pattern_regex(struct ash_tok_pattern *pattern, const char *expression, struct ash_err *err);
/* A pattern that is a text, likewise. */
int ash_tok_pattern_literal(struct ash_tok_pattern *pattern, const char *literal, size_t size_bytes,
                            struct ash_err *err);
/* Read {"String": …} or {"Regex": …} at key "pattern" of object. */
int ash_tok_pattern_load(struct ash_tok_pattern *pattern, const json_t *object, struct ash_err *err);
/* Free what a pattern holds; a zeroed one is a no-op. */
void ash_tok_pattern_fini(struct ash_tok_pattern *pattern);

/* Begin a walk over the matches in text. Borrows all three. */
struct ash_tok_finder ash_tok_finder_make(const struct ash_tok_pattern *pattern, struct ash_tok_scratch *scratch,
                                          struct ash_tok_span text);
/* The next match, possibly empty. 1 and its bounds, 0 at the end, or a negative errno when it takes too many steps. */
int ash_tok_finder_next(struct ash_tok_finder *finder, size_t *start_out, size_t *end_out, struct ash_err *err);

/* Rewrite an expression in the dialect that tokenizer files use (Oniguruma's, Ruby flavour) as one for PCRE2 with UTF
 * and UCP. A construct without an equal is -ENOTSUP and named. */
int ash_tok_onig_translate(const char *expression, struct ash_str *out, struct ash_err *err);

/* Has it Unicode's White_Space? */
bool ash_tok_is_space(uint32_t point);
/* Rust's char::is_numeric. */
bool ash_tok_is_numeric(uint32_t point);
/* ASCII punctuation, or one of Unicode's categories P. */
bool ash_tok_is_punctuation(uint32_t point);
/* What Rust's \w matches. */
bool ash_tok_is_word(uint32_t point);

/* ---- normalize --------------------------------------------------------------------------------------------------- */

enum ash_tok_form { ASH_TOK_NFC, ASH_TOK_NFD, ASH_TOK_NFKC, ASH_TOK_NFKD };

struct ash_tok_former; /* one of Unicode's normalization forms, with a table of the characters it leaves unchanged */

/* NULL when out of memory. */
struct ash_tok_former *ash_tok_former_open(enum ash_tok_form form);
/* NULL is a no-op. */
void ash_tok_former_close(struct ash_tok_former *former);
/* *changed_out false: text is in this form already and out was not touched. Otherwise out (cleared first) gets the
 * text. */
int ash_tok_former_apply(const struct ash_tok_former *former, struct ash_tok_span text, struct ash_str *out,
                         bool *changed_out);

enum ash_tok_norm_kind {
    ASH_TOK_FORM,
    ASH_TOK_PREPEND,
    ASH_TOK_REPLACE,
    ASH_TOK_LOWERCASE,
    ASH_TOK_MAP_BYTES,
    ASH_TOK_CLEAN,       /* BERT: no control characters, spaces for all white space */
    ASH_TOK_SPACE_HAN,   /* spaces around Chinese characters */
    ASH_TOK_STRIP_MARKS, /* no marks that take no room */
    ASH_TOK_CHARSMAP,    /* SentencePiece's compiled rules */
    ASH_TOK_STRIP,       /* no white space at the ends */
};

struct ash_tok_charsmap;

struct ash_tok_norm {
    enum ash_tok_norm_kind kind;
    struct ash_tok_former *former;
    struct ash_tok_pattern pattern;
    struct ash_str content; /* to prepend, or the replacement */
    struct ash_tok_charsmap *map;
    bool is_longest; /* rules apply as SentencePiece has them */
    bool strips_left, strips_right;
};

struct ash_tok_norms {
    struct ash_tok_norm steps[ASH_TOK_STEPS_MAX];
    size_t count;
};

/* Read "normalizer" of root into a zeroed struct. On error fini frees it. */
int ash_tok_norms_load(struct ash_tok_norms *norms, const json_t *root, struct ash_err *err);
/* Free what load made. */
void ash_tok_norms_fini(struct ash_tok_norms *norms);
/* *out borrows text, or one of the scratch buffers until the next call. */
int ash_tok_norms_apply(const struct ash_tok_norms *norms, struct ash_tok_scratch *scratch, struct ash_tok_span text,
                        struct ash_tok_span *out, struct ash_err *err);

/* bert.c: ASH_TOK_CLEAN, ASH_TOK_SPACE_HAN and ASH_TOK_STRIP_MARKS, appended to out. 0 or -ENOMEM. */
int ash_tok_bert_apply(enum ash_tok_norm_kind kind, struct ash_tok_span text, struct ash_str *out);

/* Append text with every match of pattern replaced by content. -E2BIG when out grows beyond the scratch's limit. */
int ash_tok_replace(const struct ash_tok_pattern *pattern, struct ash_tok_scratch *scratch, struct ash_tok_span text,
                    const struct ash_str *content, struct ash_str *out, struct ash_err *err);

/* ---- pretokenize ------------------------------------------------------------------------------------------------- */

enum ash_tok_pre_kind { ASH_TOK_SPLIT, ASH_TOK_BYTE_LEVEL, ASH_TOK_METASPACE };
enum ash_tok_behavior {
    ASH_TOK_ISOLATED,
    ASH_TOK_REMOVED,
    ASH_TOK_MERGED_PREVIOUS,
    ASH_TOK_MERGED_NEXT,
    ASH_TOK_CONTIGUOUS
};
enum ash_tok_prepend { ASH_TOK_PREPEND_ALWAYS, ASH_TOK_PREPEND_FIRST, ASH_TOK_PREPEND_NEVER };

struct ash_tok_pre {
    enum ash_tok_pre_kind kind;
    struct ash_tok_pattern pattern; /* split, byte level with use_regex, metaspace: its character */
    enum ash_tok_behavior behavior;
    bool invert;
    bool splits;       /* byte level: use_regex; metaspace: split */
    bool prefix_space; /* byte level */
    bool map;          /* byte level that is not the last step: bytes become characters right here */
    enum ash_tok_prepend prepend;
};

struct ash_tok_pres {
    struct ash_tok_pre steps[ASH_TOK_STEPS_MAX];
    size_t count;
};

/* Read "pre_tokenizer" of root into a zeroed struct. On error fini frees it. */
int ash_tok_pres_load(struct ash_tok_pres *pres, const json_t *root, struct ash_err *err);
/* Free what load made. */
void ash_tok_pres_fini(struct ash_tok_pres *pres);
/* Does the chain end in ByteLevel, and only there? Then words can stay raw bytes. */
bool ash_tok_pres_end_in_bytes(const struct ash_tok_pres *pres);
/* Bytes stay raw after the last step when raw_bytes; otherwise each ByteLevel maps in its place. */
void ash_tok_pres_set_raw(struct ash_tok_pres *pres, bool raw_bytes);

/* What one encode call carries along. */
struct ash_tok_run {
    const struct ash_tokenizer *tokenizer;
    struct ash_tok_scratch *scratch;
    struct ash_ids *ids;
    ash_tokenizer_word_fn word; /* gets the words in place of the model; NULL: they become ids */
    void *word_ctx;
    struct ash_err *err;
};

/* Cut piece into words and append their ids. at_start: the piece begins where the input begins. */
int ash_tok_pres_encode(struct ash_tok_run *run, struct ash_tok_span piece, bool at_start);

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

struct ash_tok_added_token {
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
    struct ash_str content;
    struct ash_str shape; /* the text searched for: the content, normalized if the file says so */
};

struct ash_tok_trie; /* contents as a tree of bytes */

struct ash_tok_added {
    struct ash_tok_added_token *tokens;
    size_t count;
    int32_t *slots; /* open addressing over the contents: index or -1 */
    size_t slot_mask;
    struct ash_tok_trie *raw;        /* looked for in the text as it comes */
    struct ash_tok_trie *normalized; /* looked for after normalizing */
};

/* Read "added_tokens" and put them into the model's table of ids. */
int ash_tok_added_load(struct ash_tok_added *added, const json_t *root, struct ash_tok_vocab *vocab,
                       const struct ash_tok_norms *norms, struct ash_tok_scratch *scratch, struct ash_err *err);
/* Free what load made. */
void ash_tok_added_fini(struct ash_tok_added *added);
/* The id of an added token by content, or -1. */
int32_t ash_tok_added_find(const struct ash_tok_added *added, const char *content);

/* What a text falls into: pieces of text (token NULL) and added tokens. */
typedef int (*ash_tok_piece_fn)(void *ctx, struct ash_tok_span piece, const struct ash_tok_added_token *token,
                                size_t offset);
/* Call piece for each part of text in order. Empty parts are left out. trie NULL: the whole text is one piece. */
int ash_tok_added_cut(const struct ash_tok_added *added, const struct ash_tok_trie *trie, struct ash_tok_span text,
                      ash_tok_piece_fn piece, void *ctx);

/* ---- postprocess ------------------------------------------------------------------------------------------------- */

struct ash_tok_pair_item;

struct ash_tok_post {
    bool has_template; /* otherwise the text alone */
    int32_t *ids;      /* the template: an id, or ASH_TOK_SEQUENCE for the text itself */
    size_t count;
    struct ash_tok_pair_item *pair; /* the template of two texts; NULL: there is none */
    size_t pair_count;
};
#define ASH_TOK_SEQUENCE (-1)
#define ASH_TOK_SECOND (-2)

/* An id, ASH_TOK_SEQUENCE or ASH_TOK_SECOND for the texts; and whether it belongs to the second one. */
struct ash_tok_pair_item {
    int32_t id;
    bool is_second;
};

/* Read "post_processor" of root into a zeroed struct. On error fini frees it. */
int ash_tok_post_load(struct ash_tok_post *post, const json_t *root, struct ash_err *err);
/* Put id before texts, if there is no template; below 0: nothing. The hash changes. */
int ash_tok_post_begin(struct ash_tokenizer *tokenizer, int32_t id, struct ash_err *err);
/* Free what load made. */
void ash_tok_post_fini(struct ash_tok_post *post);

/* ---- decode ------------------------------------------------------------------------------------------------------ */

enum ash_tok_dec_kind {
    ASH_TOK_DEC_JOIN,  /* no decoder at all: tokens with a space between them */
    ASH_TOK_DEC_BYTES, /* ByteLevel */
    ASH_TOK_DEC_REPLACE,
    ASH_TOK_DEC_FALLBACK, /* ByteFallback */
    ASH_TOK_DEC_FUSE,
    ASH_TOK_DEC_STRIP,
    ASH_TOK_DEC_METASPACE,
    ASH_TOK_DEC_WORD_PIECE
};

struct ash_tok_dec {
    enum ash_tok_dec_kind kind;
    struct ash_tok_pattern pattern;
    struct ash_str content; /* the replacement, or the character to strip or to turn into a space */
    size_t strip_start, strip_stop;
    bool drop_first; /* metaspace: the first token loses its marks */
    bool cleans;     /* word piece: no space before English punctuation */
};

struct ash_tok_decs {
    struct ash_tok_dec steps[ASH_TOK_STEPS_MAX];
    size_t count;
};

/* Read "decoder" of root into a zeroed struct. On error fini frees it. */
int ash_tok_decs_load(struct ash_tok_decs *decs, const json_t *root, struct ash_err *err);
/* Free what load made. */
void ash_tok_decs_fini(struct ash_tok_decs *decs);

/* ---- the whole --------------------------------------------------------------------------------------------------- */

struct ash_tokenizer {
    struct ash_tok_model model;
    struct ash_tok_added added;
    struct ash_tok_norms norms;
    struct ash_tok_pres pres;
    struct ash_tok_post post;
    struct ash_tok_decs decs;
    uint64_t hash;
    struct ash_fim_marks fim; /* as a GGUF file says; each -1: it does not */
    pthread_mutex_t lock;     /* over idle */
    struct ash_tok_scratch *idle;
};

/* Fill a zeroed model; byte_level as in ash_tok_model_load. */
typedef int (*ash_tok_model_fn)(void *ctx, struct ash_tok_model *model, bool byte_level, struct ash_err *err);
/* A tokenizer of root's parts (all but its "model") and the model that load_model makes. may_be_raw: words of a chain
 * that ends in ByteLevel may arrive as bytes. */
int ash_tok_assemble(const json_t *root, bool may_be_raw, ash_tok_model_fn load_model, void *ctx, const char *name,
                     struct ash_tokenizer **tokenizer_out, struct ash_err *err);

/* Borrow scratch memory for one call. NULL when out of memory. */
struct ash_tok_scratch *ash_tok_scratch_get(const struct ash_tokenizer *tokenizer);
/* Give it back; NULL is a no-op. */
void ash_tok_scratch_put(const struct ash_tokenizer *tokenizer, struct ash_tok_scratch *scratch);

/* Call load for object's steps: itself, or where its type is Sequence the members at list_key, unrolled. */
typedef int (*ash_tok_step_fn)(void *ctx, const json_t *step, const char *type, struct ash_err *err);
/* what is for messages ("decoder"). An object that is absent or null has no steps. */
int ash_tok_each_step(const json_t *object, const char *what, const char *list_key, ash_tok_step_fn load, void *ctx,
                      struct ash_err *err);

#endif
