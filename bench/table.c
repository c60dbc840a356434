/* table ROWS.jsonl OUT.json [PATTERN]: the rows of a bench run (one JSON object a line, as bench scripts append them)
 * as a table for people and a list for programs. A row has name, unit, ours, peer, peer_value, ratio and goal; met is
 * worked out here: the ratio reaches the goal, or null where a row has no goal. */
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static bool wanted(const json_t *row, const regex_t *pattern)
{
    const char *name = json_string_value(json_object_get(row, "name"));

    return name != NULL && (pattern == NULL || regexec(pattern, name, 0, NULL, 0) == 0);
}

static void judge(json_t *row)
{
    const json_t *ratio = json_object_get(row, "ratio"), *goal = json_object_get(row, "goal");
    bool known = json_is_number(ratio) && json_is_number(goal);

    json_object_set_new(row, "met",
                        known ? json_boolean(json_number_value(ratio) >= json_number_value(goal)) : json_null());
}

static json_t *read_rows(const char *path, const regex_t *pattern)
{
    FILE *file = fopen(path, "r");
    json_t *rows = json_array();
    char *line = NULL;
    size_t capacity = 0;

    while (file != NULL && getline(&line, &capacity, file) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        if (row == NULL) {
            fprintf(stderr, "table: not JSON: %s", line);
            continue;
        }
        judge(row);
        if (wanted(row, pattern)) json_array_append(rows, row);
        json_decref(row);
    }
    free(line);
    if (file != NULL) fclose(file);
    return rows;
}

static void format_number(const json_t *row, const char *key, char *buf, size_t buf_bytes)
{
    const json_t *value = json_object_get(row, key);

    if (!json_is_number(value))
        snprintf(buf, buf_bytes, "-");
    else
        snprintf(buf, buf_bytes, "%.4g", json_number_value(value));
}

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));

    return text != NULL ? text : "-";
}

/* The longest text under key, at least as long as the heading. */
static int width_of(const json_t *rows, const char *key, const char *heading)
{
    size_t width = strlen(heading);

    for (size_t i = 0; i < json_array_size(rows); i++) {
        size_t length = strlen(text_of(json_array_get(rows, i), key));
        if (length > width) width = length;
    }
    return (int)width;
}

static void print_table(const json_t *rows)
{
    int name = width_of(rows, "name", "name"), unit = width_of(rows, "unit", "unit"),
        peer = width_of(rows, "peer", "peer");

    printf("%-*s  %-*s %9s  %-*s %9s %8s %6s  %s\n", name, "name", unit, "unit", "ours", peer, "peer", "peer's",
           "ratio", "goal", "met");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *met = json_object_get(row, "met");
        char ours[32], theirs[32], ratio[32], goal[32];
        format_number(row, "ours", ours, sizeof(ours));
        format_number(row, "peer_value", theirs, sizeof(theirs));
        format_number(row, "ratio", ratio, sizeof(ratio));
        format_number(row, "goal", goal, sizeof(goal));
        printf("%-*s  %-*s %9s  %-*s %9s %8s %6s  %s\n", name, text_of(row, "name"), unit, text_of(row, "unit"), ours,
               peer, text_of(row, "peer"), theirs, ratio, goal,
               json_is_null(met)   ? "-"
               : json_is_true(met) ? "yes"
                                   : "NO");
    }
}

int main(int argc, char **argv)
{
    struct ash_err err = {0};
    regex_t pattern;
    bool filtered = argc > 3 && argv[3][0] != '\0';
    json_t *rows;
    int rc;

    if (argc < 3) {
        fprintf(stderr, "usage: table ROWS.jsonl OUT.json [PATTERN]\n");
        return 2;
    }
    if (filtered && regcomp(&pattern, argv[3], REG_EXTENDED | REG_NOSUB) != 0) {
        fprintf(stderr, "table: '%s' is no pattern\n", argv[3]);
        return 2;
    }
    rows = read_rows(argv[1], filtered ? &pattern : NULL);
    print_table(rows);
    rc = ash_json_save(argv[2], rows, &err);
    if (rc < 0) fprintf(stderr, "table: %s\n", err.text);
    json_decref(rows);
    if (filtered) regfree(&pattern);
    return rc < 0;
}
