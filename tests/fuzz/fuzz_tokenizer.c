/* Fuzz target: a tokenizer.json up to the first NUL, then a text. Whatever the file says, text that it takes must
 * decode to the same text at once and id by id, and encoding twice must agree (the second time from the cache). */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/str.h"
#include "text/tokenizer/tokenizer.h"

#define TEXT_BYTES_MAX 512 /* keeps expressions that backtrack quadratically within the time of one run */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

/* Id by id the same text as at once. */
static void check_decode(const struct ash_tokenizer *tokenizer, const struct ash_ids *ids)
{
    struct ash_decoder *decoder = NULL;
    struct ash_str whole = {0}, pieces = {0};
    struct ash_err err = {0};
    int rc = ash_tokenizer_decode(tokenizer, ids->data, ids->count, false, &whole, &err);
    int rc_pieces = ash_decoder_open(tokenizer, false, &decoder, &err);

    for (size_t i = 0; rc_pieces == 0 && i < ids->count; i++)
        rc_pieces = ash_decoder_push(decoder, ids->data[i], &pieces, &err);
    if (rc_pieces == 0) rc_pieces = ash_decoder_finish(decoder, &pieces, &err);
    ash_assert((rc == 0) == (rc_pieces == 0));
    ash_assert(rc < 0 || (whole.size_bytes == pieces.size_bytes &&
                          (whole.size_bytes == 0 || memcmp(whole.data, pieces.data, whole.size_bytes) == 0)));
    ash_decoder_close(decoder);
    ash_str_fini(&whole);
    ash_str_fini(&pieces);
}

static void check_text(const struct ash_tokenizer *tokenizer, const char *text, size_t size_bytes)
{
    struct ash_ids first = {0}, second = {0};
    struct ash_err err = {0};
    int rc = ash_tokenizer_encode(tokenizer, text, size_bytes, true, &first, &err);

    ash_assert(rc == 0 || (err.code == rc && err.text[0] != '\0'));
    if (rc == 0) {
        ash_assert(ash_tokenizer_encode(tokenizer, text, size_bytes, true, &second, &err) == 0);
        ash_assert(first.count == second.count &&
                   (first.count == 0 || memcmp(first.data, second.data, first.count * sizeof(*first.data)) == 0));
        check_decode(tokenizer, &first);
    }
    ash_ids_fini(&first);
    ash_ids_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    const uint8_t *end = memchr(data, '\0', size_bytes);
    size_t json_bytes = end != NULL ? (size_t)(end - data) : size_bytes;
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_err err = {0};
    int rc;

    if (size_bytes == 0) return 0;
    rc = ash_tokenizer_parse((const char *)data, json_bytes, "fuzz.json", &tokenizer, &err);
    ash_assert(rc == 0 || (err.code == rc && err.text[0] != '\0'));
    if (rc == 0 && end != NULL) {
        size_t text_bytes = size_bytes - json_bytes - 1;
        check_text(tokenizer, (const char *)end + 1, text_bytes < TEXT_BYTES_MAX ? text_bytes : TEXT_BYTES_MAX);
    }
    ash_tokenizer_close(tokenizer);
    return 0;
}
