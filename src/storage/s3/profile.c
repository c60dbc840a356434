/* Reads the profile files of AWS's tools: sections in brackets, name = value, comments with # or ;. Indented lines
 * belong to the name before them ("s3 =" then "  addressing_style = path"). */
#include "storage/s3/profile_priv.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define NAME_BYTES 128
#define LINE_BYTES 9216 /* a session token and its name */

struct scan {
    const char *path, *wanted;
    bool is_config, is_inside;
    size_t line;
    char parent[NAME_BYTES]; /* of indented lines */
    struct ash_s3_profile *profile;
};

/* text without spaces around it, in place. */
static char *trim(char *text)
{
    size_t length;

    while (isspace((unsigned char)*text))
        text++;
    length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

static int enter_section(struct scan *scan, char *line, struct ash_err *err)
{
    char *end = strchr(line, ']'), *name;

    if (end == NULL) return ash_err_set(err, -EINVAL, "%s:%zu: the bracket is not closed", scan->path, scan->line);
    *end = '\0';
    name = trim(line + 1);
    scan->parent[0] = '\0';
    scan->is_inside = strcmp(name, scan->wanted) == 0 && (!scan->is_config || strcmp(name, "default") == 0);
    if (scan->is_config && strncmp(name, "profile", 7) == 0 && isspace((unsigned char)name[7]))
        scan->is_inside = strcmp(trim(name + 7), scan->wanted) == 0;
    if (scan->is_inside) scan->profile->is_found = true;
    return 0;
}

/* Ways to get keys that need a service of their own. */
static bool is_elsewhere(const char *name)
{
    static const char *const names[] = {
        "role_arn",      "source_profile", "credential_source",       "credential_process", "sso_session",
        "sso_start_url", "sso_account_id", "web_identity_token_file", "login_session"};

    for (size_t i = 0; i < ASH_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static int take(struct scan *scan, const char *name, const char *value, struct ash_err *err)
{
    struct ash_s3_profile *profile = scan->profile;
    const struct {
        const char *name;
        char *field;
        size_t field_bytes;
    } fields[] = {
        {"aws_access_key_id", profile->keys.access, sizeof(profile->keys.access)},
        {"aws_secret_access_key", profile->keys.secret, sizeof(profile->keys.secret)},
        {"aws_session_token", profile->keys.token, sizeof(profile->keys.token)},
        {"region", profile->region, sizeof(profile->region)},
        {"endpoint_url", profile->endpoint, sizeof(profile->endpoint)},
        {"s3.endpoint_url", profile->endpoint, sizeof(profile->endpoint)},
        {"s3.addressing_style", profile->addressing, sizeof(profile->addressing)},
        {"ca_bundle", profile->ca_file, sizeof(profile->ca_file)},
    };

    if (is_elsewhere(name)) snprintf(profile->elsewhere, sizeof(profile->elsewhere), "%.63s", name);
    for (size_t i = 0; i < ASH_COUNT(fields); i++) {
        if (strcmp(name, fields[i].name) != 0) continue;
        if (strlen(value) >= fields[i].field_bytes)
            return ash_err_set(err, -EINVAL, "%s:%zu: the value of %s is too long", scan->path, scan->line, name);
        memcpy(fields[i].field, value, strlen(value) + 1);
    }
    return 0;
}

static int take_setting(struct scan *scan, char *line, bool is_indented, struct ash_err *err)
{
    char *equals = strchr(line, '='), *name, *value, full[2 * NAME_BYTES];

    if (equals == NULL)
        return ash_err_set(err, -EINVAL, "%s:%zu: expected name = value or [section]", scan->path, scan->line);
    *equals = '\0';
    name = trim(line);
    value = trim(equals + 1);
    if (strlen(name) >= NAME_BYTES)
        return ash_err_set(err, -EINVAL, "%s:%zu: the name is too long", scan->path, scan->line);
    if (!is_indented) snprintf(scan->parent, sizeof(scan->parent), "%s", value[0] == '\0' ? name : "");
    if (!scan->is_inside) return 0;
    if (is_indented && scan->parent[0] != '\0')
        snprintf(full, sizeof(full), "%s.%s", scan->parent, name);
    else
        snprintf(full, sizeof(full), "%s", name);
    return take(scan, full, value, err);
}

static int take_line(struct scan *scan, char *line, struct ash_err *err)
{
    bool is_indented = isspace((unsigned char)line[0]);
    char *text = trim(line);

    if (text[0] == '\0' || text[0] == '#' || text[0] == ';') return 0;
    return text[0] == '[' ? enter_section(scan, text, err) : take_setting(scan, text, is_indented, err);
}

int ash_s3_profile_parse(const struct ash_s3_profile_file *file, const char *name, struct ash_s3_profile *profile,
                         struct ash_err *err)
{
    struct scan scan = {.path = file->path, .wanted = name, .is_config = file->is_config, .profile = profile};
    const char *text = file->text, *path = file->path;
    size_t size_bytes = file->size_bytes;
    const char *end = text + size_bytes;
    int rc = 0;

    if (size_bytes > 0 && memchr(text, '\0', size_bytes) != NULL)
        return ash_err_set(err, -EINVAL, "%s: not a text file", path);
    while (rc == 0 && text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((stop != NULL ? stop : end) - text);
        char line[LINE_BYTES];

        scan.line++;
        if (length >= sizeof(line)) return ash_err_set(err, -EINVAL, "%s:%zu: the line is too long", path, scan.line);
        memcpy(line, text, length);
        line[length] = '\0';
        rc = take_line(&scan, line, err);
        text += length + (stop != NULL ? 1 : 0);
        explicit_bzero(line, sizeof(line));
    }
    return rc;
}
