/* sample - safetensors bytes put together by hand, so that every field can be wrong. */
#ifndef TEST_STORAGE_SAMPLE_H
#define TEST_STORAGE_SAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sample {
    unsigned char *bytes;
    size_t size_bytes;
};

/* length (little endian), header, then data_bytes bytes counting up from 0. */
static inline struct sample sample_make(uint64_t length, const char *header, size_t data_bytes)
{
    size_t header_bytes = strlen(header);
    struct sample sample = {.size_bytes = 8 + header_bytes + data_bytes};

    sample.bytes = malloc(sample.size_bytes);
    for (int i = 0; i < 8; i++)
        sample.bytes[i] = (unsigned char)(length >> (8 * i));
    memcpy(sample.bytes + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++)
        sample.bytes[8 + header_bytes + i] = (unsigned char)i;
    return sample;
}

/* The same with the true length. */
static inline struct sample sample_of(const char *header, size_t data_bytes)
{
    return sample_make(strlen(header), header, data_bytes);
}

#endif
