/* Parquet's footer: where in the schema the column is, and where in the file its row groups are. The footer is read
 * twice, once for each, so that the order of its fields does not matter. */
#include "storage/parquet/parquet_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define NAMES_BYTES_MAX 200 /* of the columns that an error lists */
#define NAME_BYTES_MAX 64
#define TYPE_BYTE_ARRAY 6
#define CONVERTED_NONE (-1)

enum { REPETITION_REQUIRED, REPETITION_OPTIONAL, REPETITION_REPEATED };
enum { META_SCHEMA = 2, META_ROW_GROUPS = 4 };
enum { ELEMENT_TYPE = 1, ELEMENT_REPETITION = 3, ELEMENT_NAME = 4, ELEMENT_CHILDREN = 5, ELEMENT_CONVERTED = 6 };
enum { GROUP_COLUMNS = 1, GROUP_ROWS = 3 };
enum { CHUNK_FILE = 1, CHUNK_META = 3, CHUNK_CRYPTO = 8 };
enum {
    COLUMN_TYPE = 1,
    COLUMN_CODEC = 4,
    COLUMN_VALUES = 5,
    COLUMN_BYTES = 7,
    COLUMN_DATA = 9,
    COLUMN_DICTIONARY = 11
};

static int refuse_damaged(struct ash_err *err)
{
    return ash_err_set(err, -EBADMSG, "the footer is damaged: write the file again, or copy it again");
}

/* Go to a field of FileMetaData that is a list of structs. */
static uint64_t find_list(struct ash_thrift *thrift, int64_t id)
{
    struct ash_thrift_field field = {0};

    while (ash_thrift_next(thrift, &field)) {
        if (field.id == id) return ash_thrift_structs(thrift, &field);
        ash_thrift_skip(thrift, &field);
    }
    return 0;
}

/* ---- the schema -------------------------------------------------------------------------------------------------- */

struct element {
    int64_t type, repetition, children, converted;
    const char *name;
    size_t name_bytes;
};

struct schema {
    const char *column;
    struct ash_thrift thrift; /* at the next element */
    uint64_t left;            /* elements not read yet */
    size_t leaf;              /* leaves so far */
    bool is_found;            /* then these: */
    struct element found;     /* the column, */
    size_t found_leaf;        /* and which leaf it is */
    struct ash_str names;     /* of the columns that could be read */
};

static void read_element(struct schema *schema, struct element *element)
{
    struct ash_thrift *thrift = &schema->thrift;
    struct ash_thrift_field field = {0};

    *element = (struct element){.type = -1, .converted = CONVERTED_NONE, .name = ""};
    if (schema->left == 0)
        thrift->is_bad = true;
    else
        schema->left--;
    while (ash_thrift_next(thrift, &field)) {
        if (field.id == ELEMENT_TYPE)
            element->type = ash_thrift_int(thrift, &field);
        else if (field.id == ELEMENT_REPETITION)
            element->repetition = ash_thrift_int(thrift, &field);
        else if (field.id == ELEMENT_NAME)
            element->name = ash_thrift_binary(thrift, &field, &element->name_bytes);
        else if (field.id == ELEMENT_CHILDREN)
            element->children = ash_thrift_int(thrift, &field);
        else if (field.id == ELEMENT_CONVERTED)
            element->converted = ash_thrift_int(thrift, &field);
        else
            ash_thrift_skip(thrift, &field);
    }
    if (element->children < 0 || (uint64_t)element->children > schema->left) thrift->is_bad = true;
}

/* Texts: byte arrays that are not marked as something else. */
static bool is_text(const struct element *element)
{
    static const int64_t texts[] = {CONVERTED_NONE, 0 /* UTF8 */, 4 /* ENUM */, 19 /* JSON */};

    if (element->children > 0 || element->type != TYPE_BYTE_ARRAY || element->repetition == REPETITION_REPEATED)
        return false;
    for (size_t i = 0; i < ASH_COUNT(texts); i++)
        if (element->converted == texts[i]) return true;
    return false;
}

/* One column at the top of the schema, with all below it. */
static void read_top(struct schema *schema)
{
    struct element top, below;
    size_t leaf = schema->leaf;
    uint64_t pending;

    read_element(schema, &top);
    pending = (uint64_t)top.children;
    schema->leaf += pending == 0;
    while (pending > 0 && ash_thrift_ok(&schema->thrift)) {
        read_element(schema, &below);
        pending += (uint64_t)below.children - 1;
        schema->leaf += below.children == 0;
    }
    if (!ash_thrift_ok(&schema->thrift)) return;
    if (is_text(&top) && schema->names.size_bytes < NAMES_BYTES_MAX)
        ash_str_addf(&schema->names, "%s%.*s", schema->names.size_bytes > 0 ? ", " : "",
                     top.name_bytes < NAME_BYTES_MAX ? (int)top.name_bytes : NAME_BYTES_MAX, top.name);
    if (schema->is_found || top.name_bytes != strlen(schema->column) ||
        memcmp(top.name, schema->column, top.name_bytes) != 0)
        return;
    schema->is_found = true;
    schema->found = top;
    schema->found_leaf = leaf;
}

static int refuse_column(const struct schema *schema, struct ash_err *err)
{
    const char *names = schema->names.size_bytes > 0 ? schema->names.data : "none";

    if (!schema->is_found)
        return ash_err_set(err, -EINVAL, "there is no column '%s'; name one with --field (columns of text: %s)",
                           schema->column, names);
    if (schema->found.children > 0 || schema->found.repetition == REPETITION_REPEATED)
        return ash_err_set(err, -EINVAL,
                           "the column '%s' is nested (lists or structs); columns with one text per row are read (%s)",
                           schema->column, names);
    return ash_err_set(err, -EINVAL, "the column '%s' holds no text; name one with --field (columns of text: %s)",
                       schema->column, names);
}

static int find_column(const struct ash_thrift *message, struct schema *schema, struct ash_err *err)
{
    struct element root;

    schema->thrift = *message;
    schema->left = find_list(&schema->thrift, META_SCHEMA);
    read_element(schema, &root);
    for (int64_t i = 0; i < root.children && ash_thrift_ok(&schema->thrift); i++)
        read_top(schema);
    if (!ash_thrift_ok(&schema->thrift)) return refuse_damaged(err);
    return schema->is_found && is_text(&schema->found) ? 0 : refuse_column(schema, err);
}

/* ---- row groups -------------------------------------------------------------------------------------------------- */

struct column {
    int64_t type, codec, values, size_bytes, data, dictionary;
    bool is_elsewhere, is_encrypted, is_there;
};

static void read_column_meta(struct ash_thrift *thrift, struct column *column)
{
    struct ash_thrift_field field = {0};

    while (ash_thrift_next(thrift, &field)) {
        if (field.id == COLUMN_TYPE)
            column->type = ash_thrift_int(thrift, &field);
        else if (field.id == COLUMN_CODEC)
            column->codec = ash_thrift_int(thrift, &field);
        else if (field.id == COLUMN_VALUES)
            column->values = ash_thrift_int(thrift, &field);
        else if (field.id == COLUMN_BYTES)
            column->size_bytes = ash_thrift_int(thrift, &field);
        else if (field.id == COLUMN_DATA)
            column->data = ash_thrift_int(thrift, &field);
        else if (field.id == COLUMN_DICTIONARY)
            column->dictionary = ash_thrift_int(thrift, &field);
        else
            ash_thrift_skip(thrift, &field);
    }
}

static void read_column(struct ash_thrift *thrift, struct column *column)
{
    struct ash_thrift_field field = {0};

    *column = (struct column){.type = -1, .codec = -1};
    while (ash_thrift_next(thrift, &field)) {
        if (field.id == CHUNK_META && ash_thrift_enter(thrift, &field)) {
            read_column_meta(thrift, column);
            column->is_there = true;
            continue;
        }
        if (field.id == CHUNK_FILE) column->is_elsewhere = true;
        if (field.id == CHUNK_CRYPTO) column->is_encrypted = true;
        ash_thrift_skip(thrift, &field);
    }
}

/* The column's chunk in the next row group; *rows_out are the group's. */
static void read_group(struct ash_thrift *thrift, size_t leaf, struct column *found, int64_t *rows_out)
{
    struct ash_thrift_field field = {0};
    struct column column;
    uint64_t count;

    *found = (struct column){0};
    *rows_out = -1;
    while (ash_thrift_next(thrift, &field)) {
        if (field.id == GROUP_ROWS) {
            *rows_out = ash_thrift_int(thrift, &field);
        } else if (field.id == GROUP_COLUMNS) {
            count = ash_thrift_structs(thrift, &field);
            for (uint64_t i = 0; i < count && ash_thrift_ok(thrift); i++) {
                read_column(thrift, &column);
                if (i == leaf) *found = column;
            }
        } else {
            ash_thrift_skip(thrift, &field);
        }
    }
}

static int make_chunk(const struct column *column, int64_t rows, uint64_t data_bytes, struct ash_parquet_chunk *chunk,
                      struct ash_err *err)
{
    int64_t begin = column->dictionary > 0 && column->dictionary < column->data ? column->dictionary : column->data;

    if (column->is_encrypted) return ash_err_set(err, -ENOTSUP, "the column is encrypted, which is not read");
    if (column->is_elsewhere)
        return ash_err_set(err, -ENOTSUP, "the column is in another file, which is not read; name that file");
    if (!column->is_there || column->type != TYPE_BYTE_ARRAY || rows < 0 || column->values != rows || begin < 0 ||
        column->size_bytes < 0 || (uint64_t)begin > data_bytes ||
        (uint64_t)column->size_bytes > data_bytes - (uint64_t)begin)
        return refuse_damaged(err);
    *chunk = (struct ash_parquet_chunk){.begin = (uint64_t)begin,
                                        .end = (uint64_t)(begin + column->size_bytes),
                                        .rows = (uint64_t)rows,
                                        .codec = column->codec > INT8_MAX ? INT8_MAX : (int)column->codec};
    return rows > 0 ? ash_parquet_codec_check(chunk->codec, err) : 0;
}

static int read_groups(const struct ash_thrift *message, size_t leaf, uint64_t data_bytes,
                       struct ash_parquet_footer *footer, struct ash_err *err)
{
    struct ash_thrift thrift = *message;
    uint64_t count = find_list(&thrift, META_ROW_GROUPS);

    footer->chunks = calloc((size_t)count + 1, sizeof(*footer->chunks)); /* never of size 0 */
    if (footer->chunks == NULL) return ash_err_set(err, -ENOMEM, "no memory for %" PRIu64 " row groups", count);
    for (uint64_t i = 0; i < count; i++) {
        struct column column;
        int64_t rows = 0;
        int rc;

        read_group(&thrift, leaf, &column, &rows);
        if (!ash_thrift_ok(&thrift)) return refuse_damaged(err);
        rc = make_chunk(&column, rows, data_bytes, &footer->chunks[i], err);
        if (rc < 0) return ash_err_prefix(err, rc, "row group %" PRIu64, i);
        if (__builtin_add_overflow(footer->rows, (uint64_t)rows, &footer->rows) || footer->rows > INT64_MAX)
            return refuse_damaged(err);
        footer->chunk_count++;
    }
    return ash_thrift_ok(&thrift) ? 0 : refuse_damaged(err);
}

int ash_parquet_footer_parse(const uint8_t *data, size_t size_bytes, uint64_t data_bytes, const char *column,
                             struct ash_parquet_footer *footer_out, struct ash_err *err)
{
    const struct ash_thrift message = {.at = data, .end = data + size_bytes};
    struct schema schema = {.column = column};
    struct ash_parquet_footer footer = {0};
    int rc = find_column(&message, &schema, err);

    if (rc == 0) rc = read_groups(&message, schema.found_leaf, data_bytes, &footer, err);
    if (rc == 0) {
        footer.is_optional = schema.found.repetition == REPETITION_OPTIONAL;
        *footer_out = footer;
    } else {
        ash_parquet_footer_fini(&footer);
    }
    ash_str_fini(&schema.names);
    return rc;
}

void ash_parquet_footer_fini(struct ash_parquet_footer *footer)
{
    free(footer->chunks);
    *footer = (struct ash_parquet_footer){0};
}
