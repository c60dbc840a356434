/* Fuzz target: a SentencePiece file. One that is accepted must encode a text the same way twice, and decode the ids. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/str.h"
#include "text/tokenizer/sentencepiece.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void check_text(const struct ash_tokenizer *tokenizer, const char *text)
{
    struct ash_ids first = {0}, second = {0};
    struct ash_str decoded = {0};
    struct ash_err err = {0};
    int rc = ash_tokenizer_encode(tokenizer, text, strlen(text), true, &first, &err);

    ash_assert(rc == 0 || (err.code == rc && err.text[0] != '\0'));
    if (rc == 0) {
        ash_assert(ash_tokenizer_encode(tokenizer, text, strlen(text), true, &second, &err) == 0);
        ash_assert(first.count == second.count &&
                   (first.count == 0 || memcmp(first.data, second.data, first.count * sizeof(*first.data)) == 0));
        ash_assert(ash_tokenizer_decode(tokenizer, first.data, first.count, false, &decoded, &err) == 0);
    }
    ash_ids_fini(&first);
    ash_ids_fini(&second);
    ash_str_fini(&decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_err err = {0};
    int rc = ash_tokenizer_from_sentencepiece(data, size_bytes, NULL, "fuzz.model", &tokenizer, &err);

    ash_assert(rc == 0 || (err.code == rc && err.text[0] != '\0'));
    if (rc == 0) check_text(tokenizer, "  Hello, \xe5\x8c\x97 w\xc3\xb6rld\n 12345  ");
    ash_tokenizer_close(tokenizer);
    return 0;
}
