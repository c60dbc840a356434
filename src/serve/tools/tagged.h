/* tagged - what formats that write calls in tags are made of, and what types a parameter may have. */
#ifndef ASH_SERVE_TOOLS_TAGGED_H
#define ASH_SERVE_TOOLS_TAGGED_H

#include "serve/tools/tools.h"

/* The tags of a format, in the order in which they come. NULL: it has no such tag. */
struct ash_tool_tags {
    const char *open;       /* of all calls */
    const char *call_open;  /* NULL: `open` begins one call, with its name */
    const char *name_close; /* NULL: the end of the line */
    const char *key_open, *key_close;
    const char *kind_close; /* between it and the key's end: string="true" or "false" */
    const char *value_open, *value_close;
    const char *call_close, *close; /* close: of all calls; NULL: there is one */
    const char *line_close;         /* "\n" and value_close: values have lines of their own */
};
/* Those of a format; NULL for formats without tags. */
const struct ash_tool_tags *ash_tool_tags_get(enum ash_tool_format format);

/* JSON's types, as bits. */
enum {
    ASH_TOOL_TYPE_STRING = 1,
    ASH_TOOL_TYPE_NUMBER = 2,
    ASH_TOOL_TYPE_BOOLEAN = 4,
    ASH_TOOL_TYPE_NULL = 8,
    ASH_TOOL_TYPE_OBJECT = 16,
    ASH_TOOL_TYPE_ARRAY = 32,
    ASH_TOOL_TYPES_ALL = 63
};
/* The type of a value. */
unsigned ash_tool_type_of(const json_t *value);
/* The types that values of a schema may have, as far as its types, values, alternatives and references within root
 * say. */
unsigned ash_tool_types_in(const json_t *schema, const json_t *root);
/* Those of a tool's parameter. tool may be NULL: all. */
unsigned ash_tool_types_of(const struct ash_tool *tool, const char *key);

#endif
