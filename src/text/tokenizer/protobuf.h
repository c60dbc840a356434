/* protobuf - fields of a protocol buffer message, one after the other, as SentencePiece's files have them. */
#ifndef ASH_TEXT_TOKENIZER_PROTOBUF_H
#define ASH_TEXT_TOKENIZER_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A message, or the rest of one; borrows its bytes. */
struct ash_tok_message {
    const uint8_t *data;
    size_t size_bytes;
};

/* Of a field: its number and its value, by its wire type. */
struct ash_tok_field {
    uint32_t number;
    uint64_t whole;                 /* of a varint, or of 4 or 8 bytes */
    bool is_bytes;                  /* text, bytes, or a message: */
    struct ash_tok_message message; /* borrowed */
};

/* Take the next field off the message. Returns 1, 0 at its end, or -EINVAL where it is damaged. */
int ash_tok_next_field(struct ash_tok_message *message, struct ash_tok_field *field_out);
/* A field of 4 bytes as a float. */
float ash_tok_field_float(const struct ash_tok_field *field);

#endif
