/* yaml - a whole YAML document as a JSON tree, for files that hold lists of things (opts reads settings). */
#ifndef ASH_BASE_YAML_H
#define ASH_BASE_YAML_H

#include <jansson.h>
#include <stddef.h>
#include "ashlar/err.h"

#define ASH_YAML_MAX_BYTES ((size_t)4 << 20)

/* Parse one document. Plain scalars become null, booleans (true, false), integers, reals or strings; quoted ones are
 * strings. Refused with file and line: anchors, aliases, tags, keys that are not scalars or are written twice, several
 * documents, more than 32 levels, text that is not UTF-8. An empty document is null. name is for messages. The caller
 * owns *json_out (json_decref). */
int ash_yaml_parse(const char *text, size_t size_bytes, const char *name, json_t **json_out, struct ash_err *err);
/* The same for a file of at most ASH_YAML_MAX_BYTES. */
int ash_yaml_load(const char *path, json_t **json_out, struct ash_err *err);

#endif
