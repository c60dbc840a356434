/* Headers of Parquet's pages. */
#include "storage/parquet/parquet_priv.h"

#include <errno.h>

enum { PAGE_TYPE = 1, PAGE_PLAIN_BYTES = 2, PAGE_PACKED_BYTES = 3, PAGE_CRC = 4, PAGE_DATA = 5 };
enum { PAGE_DICTIONARY = 7, PAGE_DATA_V2 = 8 };
enum { DATA_VALUES = 1, DATA_ENCODING = 2, DATA_LEVEL_ENCODING = 3 };
enum { V2_VALUES = 1, V2_ENCODING = 4, V2_DEFINITION_BYTES = 5, V2_REPETITION_BYTES = 6, V2_IS_COMPRESSED = 7 };

/* DataPageHeader; DictionaryPageHeader begins alike. */
static void read_data(struct ash_thrift *thrift, bool is_dictionary, struct ash_parquet_page_header *header)
{
    struct ash_thrift_field field = {0};

    while (ash_thrift_next(thrift, &field)) {
        if (field.id == DATA_VALUES)
            header->values = ash_thrift_int(thrift, &field);
        else if (field.id == DATA_ENCODING)
            header->encoding = ash_thrift_int(thrift, &field);
        else if (field.id == DATA_LEVEL_ENCODING && !is_dictionary)
            header->level_encoding = ash_thrift_int(thrift, &field);
        else
            ash_thrift_skip(thrift, &field);
    }
}

static void read_data_v2(struct ash_thrift *thrift, struct ash_parquet_page_header *header)
{
    struct ash_thrift_field field = {0};

    header->is_compressed = true;
    header->level_encoding = ASH_PARQUET_RLE;
    while (ash_thrift_next(thrift, &field)) {
        if (field.id == V2_VALUES)
            header->values = ash_thrift_int(thrift, &field);
        else if (field.id == V2_ENCODING)
            header->encoding = ash_thrift_int(thrift, &field);
        else if (field.id == V2_DEFINITION_BYTES)
            header->definition_bytes = ash_thrift_int(thrift, &field);
        else if (field.id == V2_REPETITION_BYTES)
            header->repetition_bytes = ash_thrift_int(thrift, &field);
        else if (field.id == V2_IS_COMPRESSED)
            header->is_compressed = ash_thrift_int(thrift, &field) != 0;
        else
            ash_thrift_skip(thrift, &field);
    }
}

static void read_field(struct ash_thrift *thrift, const struct ash_thrift_field *field,
                       struct ash_parquet_page_header *header)
{
    switch (field->id) {
    case PAGE_TYPE:
        header->type = ash_thrift_int(thrift, field);
        break;
    case PAGE_PLAIN_BYTES:
        header->plain_bytes = ash_thrift_int(thrift, field);
        break;
    case PAGE_PACKED_BYTES:
        header->packed_bytes = ash_thrift_int(thrift, field);
        break;
    case PAGE_CRC:
        header->crc = (uint32_t)ash_thrift_int(thrift, field);
        header->has_crc = true;
        break;
    case PAGE_DATA:
    case PAGE_DICTIONARY:
        if (ash_thrift_enter(thrift, field)) read_data(thrift, field->id == PAGE_DICTIONARY, header);
        break;
    case PAGE_DATA_V2:
        if (ash_thrift_enter(thrift, field)) read_data_v2(thrift, header);
        break;
    default:
        ash_thrift_skip(thrift, field);
    }
}

/* Sizes as the format has them: 32 bits, not negative. */
static bool is_possible(const struct ash_parquet_page_header *header)
{
    const int64_t sizes[] = {header->plain_bytes,      header->packed_bytes,     header->values,
                             header->definition_bytes, header->repetition_bytes, header->encoding};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (sizes[i] < 0 || sizes[i] > INT32_MAX) return false;
    return header->definition_bytes + header->repetition_bytes <= header->plain_bytes &&
           header->definition_bytes + header->repetition_bytes <= header->packed_bytes;
}

int ash_parquet_page_header_parse(const uint8_t *data, size_t size_bytes, struct ash_parquet_page_header *header_out)
{
    struct ash_thrift thrift = {.at = data, .end = data + size_bytes};
    struct ash_parquet_page_header header = {.type = -1, .level_encoding = ASH_PARQUET_RLE};
    struct ash_thrift_field field = {0};

    while (ash_thrift_next(&thrift, &field))
        read_field(&thrift, &field, &header);
    if (thrift.is_torn) return -EAGAIN;
    if (thrift.is_bad || !is_possible(&header)) return -EBADMSG;
    header.header_bytes = (size_t)(thrift.at - data);
    *header_out = header;
    return 0;
}
