/* onig_priv - reading Oniguruma's dialect: shared by onig.c (the expression), onig_char.c (characters) and onig_class.c
 * (sets, classes). */
#ifndef ASH_TEXT_ONIG_PRIV_H
#define ASH_TEXT_ONIG_PRIV_H

#include "text/tokenizer/tokenizer_priv.h"

#define ASH_ONIG_GROUPS_MAX 64
#define ASH_ONIG_CLASSES_MAX 16 /* classes inside classes */

/* What Oniguruma means by \w inside a class: alphabetic characters (letters, their numbers, letters in circles and
 * squares), marks, digits and connectors. It ends in a range: a hyphen that follows cannot make a new one of it. */
#define ASH_ONIG_WORD_SET                                                                                              \
    "\\p{L}\\p{M}\\p{Nl}\\p{Nd}\\p{Pc}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}\\x{24b6}-\\x{"   \
    "24e9}"

enum ash_onig_repeat { ASH_ONIG_ONCE, ASH_ONIG_SIMPLE, ASH_ONIG_COUNTED, ASH_ONIG_DONE };

struct ash_onig_reader {
    const char *begin, *at, *end;
    struct ash_str *out;
    struct ash_err *err;
    int rc;      /* the first error; nothing is written after it */
    size_t atom; /* where in out the last item starts, SIZE_MAX when there is none to repeat */
    enum ash_onig_repeat repeat;
    bool exact; /* the counted repeat was {n} */
    size_t group_atoms[ASH_ONIG_GROUPS_MAX];
    int group_closers[ASH_ONIG_GROUPS_MAX]; /* groups that (?i) opened inside this one */
    int group_count;
};

/* A class that was read: what goes between brackets (plain), or an expression that matches one character. */
struct ash_onig_class {
    struct ash_str text;
    bool plain;
};

/* Append text to out, or note that memory is out. */
void ash_onig_emit(struct ash_onig_reader *reader, struct ash_str *out, const char *text);
/* Append one character by its number. */
void ash_onig_emit_point(struct ash_onig_reader *reader, struct ash_str *out, uint32_t point);
/* Set the error at the present place. Always false, for callers that return the same. */
bool ash_onig_refuse(struct ash_onig_reader *reader, int code, const char *what);
/* Does the rest of the expression begin with text? */
bool ash_onig_looking_at(const struct ash_onig_reader *reader, const char *text);
/* An ASCII letter or digit? */
bool ash_onig_is_alnum(char c);

/* After a backslash: the character that the escape names. False: it names none, or it was refused (rc). */
bool ash_onig_read_escaped_point(struct ash_onig_reader *reader, bool in_class, uint32_t *point_out);
/* After a backslash: append the set that the escape names to out, in the form that goes between brackets. False as
 * above. */
bool ash_onig_read_escaped_set(struct ash_onig_reader *reader, struct ash_str *out, bool *negated_out);
/* From an opening bracket on. The caller frees class->text whatever the result. */
bool ash_onig_read_class(struct ash_onig_reader *reader, int depth, struct ash_onig_class *klass);

#endif
