/* err - a failure as a code and a sentence that a user can act on. Part of the public API and of every floor. */
#ifndef ASHLAR_ERR_H
#define ASHLAR_ERR_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* of the shared library, these are what one sees */

#define ASH_ERR_TEXT_BYTES 512

/* Owned by the caller, who passes it last to calls that can fail for many reasons. Zero-initialise it. */
struct ash_err {
    int code;                      /* negative errno, 0 when nothing failed */
    char text[ASH_ERR_TEXT_BYTES]; /* one sentence, no trailing newline */
};

/* Fill err (may be NULL) and return code, so that a caller can write `return ash_err_set(...)`. code must be
 * negative. */
int ash_err_set(struct ash_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Put "prefix: " before the sentence already in err (may be NULL) and return err's code, or code where err is NULL.
 * For the caller who knows which file or step the cause belongs to. */
int ash_err_prefix(struct ash_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
