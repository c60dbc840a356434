/* The chain of places where keys may be, in the order of AWS's own tools. */
#include "storage/s3/keys_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/opts.h"
#include "http/curl.h"
#include "storage/s3/doc_priv.h"
#include "storage/s3/s3_priv.h"

#define CONTAINER_HOST "http://169.254.170.2"
#define INSTANCE_HOST "http://169.254.169.254"
#define CONTAINER_MS 5000
#define INSTANCE_MS 1000 /* machines that are not instances do not answer at all */
#define URL_BYTES 1024
#define KEYS_MARGIN_S 300.0                               /* keys that end sooner are renewed */
#define KEYS_PAUSE_NS ((uint64_t)10 * 1000 * 1000 * 1000) /* between two looks for new keys */

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Read a profile file if there is one. */
static int read_file(const char *variable, const char *name, const char *wanted, bool is_config,
                     struct ash_s3_profile *profile, struct ash_err *err)
{
    const char *given = ash_env_get(variable), *home = ash_env_get("HOME");
    char path[PATH_MAX], *text = NULL;
    size_t size_bytes = 0;
    int rc;

    snprintf(path, sizeof(path), "%s%s%s",
             given != NULL  ? given
             : home != NULL ? home
                            : "",
             given != NULL ? "" : "/.aws/", given != NULL ? "" : name);
    if (!ash_path_exists(path)) return 0;
    rc = ash_file_read(path, ASH_S3_PROFILE_FILE_BYTES, &text, &size_bytes, err);
    if (rc < 0) return rc;
    rc = ash_s3_profile_parse(&(struct ash_s3_profile_file){text, path, size_bytes, is_config}, wanted, profile, err);
    explicit_bzero(text, size_bytes);
    free(text);
    return rc;
}

static bool has_keys(const struct ash_s3_keys *keys)
{
    return keys->access[0] != '\0' && keys->secret[0] != '\0';
}

/* ---- environment ------------------------------------------------------------------------------------------------- */

static int from_environment(struct ash_s3_keys *keys, struct ash_err *err)
{
    const char *access = ash_env_get("AWS_ACCESS_KEY_ID"), *secret = ash_env_get("AWS_SECRET_ACCESS_KEY");
    const char *token = ash_env_get("AWS_SESSION_TOKEN");

    if (access == NULL && secret == NULL) return 0;
    if (access == NULL || secret == NULL)
        return ash_err_set(err, -EACCES, "%s is set and %s is not: S3 needs both",
                           access != NULL ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                           access != NULL ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    if (strlen(access) >= sizeof(keys->access) || strlen(secret) >= sizeof(keys->secret) ||
        (token != NULL && strlen(token) >= sizeof(keys->token)))
        return ash_err_set(err, -EACCES, "the keys in the environment are too long");
    *keys = (struct ash_s3_keys){0};
    snprintf(keys->access, sizeof(keys->access), "%s", access);
    snprintf(keys->secret, sizeof(keys->secret), "%s", secret);
    snprintf(keys->token, sizeof(keys->token), "%s", token != NULL ? token : "");
    return 1;
}

/* ---- endpoints --------------------------------------------------------------------------------------------------- */

int ash_s3_keys_parse(const char *text, size_t size_bytes, const char *name, struct ash_s3_keys *keys_out,
                      struct ash_err *err)
{
    const char *access = NULL, *secret = NULL, *token = "", *expires = "";
    json_t *json = NULL;
    int rc = ash_json_parse(text, size_bytes, name, &json, err);

    if (rc < 0) return rc;
    rc = ash_json_string(json, "AccessKeyId", &access, err);
    if (rc >= 0) rc = ash_json_string(json, "SecretAccessKey", &secret, err);
    if (rc >= 0) rc = ash_json_string(json, "Token", &token, err);
    if (rc >= 0) rc = ash_json_string(json, "Expiration", &expires, err);
    if (rc >= 0 && (access == NULL || secret == NULL || strlen(access) >= sizeof(keys_out->access) ||
                    strlen(secret) >= sizeof(keys_out->secret) || strlen(token) >= sizeof(keys_out->token)))
        rc = ash_err_set(err, -EBADMSG, "%s hands out no keys that can be used", name);
    if (rc >= 0) {
        *keys_out = (struct ash_s3_keys){.expires_s = ash_s3_time_parse(expires)};
        snprintf(keys_out->access, sizeof(keys_out->access), "%s", access);
        snprintf(keys_out->secret, sizeof(keys_out->secret), "%s", secret);
        snprintf(keys_out->token, sizeof(keys_out->token), "%s", token);
    }
    json_decref(json);
    return rc < 0 ? rc : 0;
}

/* Keys may be requested over plain HTTP on this machine and its link only. */
static bool is_near(const char *url)
{
    static const char *const near[] = {
        "https://", "http://127.", "http://localhost", "http://169.254.170.", "http://[::1]", "http://[fd00:ec2::23]"};

    for (size_t i = 0; i < sizeof(near) / sizeof(near[0]); i++)
        if (strncmp(url, near[i], strlen(near[i])) == 0) return true;
    return false;
}

/* "Authorization: TOKEN" for the container's endpoint into line; "" if there is none. */
static int authorization_line(char *line, size_t line_bytes, struct ash_err *err)
{
    const char *token = ash_env_get("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const char *path = ash_env_get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    char *text = NULL;
    size_t size_bytes = 0;
    int rc;

    line[0] = '\0';
    if (token != NULL) snprintf(line, line_bytes, "Authorization: %s", token);
    if (path == NULL) return 0;
    rc = ash_file_read(path, ASH_S3_TOKEN_BYTES, &text, &size_bytes, err);
    if (rc < 0) return rc;
    text[strcspn(text, "\r\n")] = '\0';
    snprintf(line, line_bytes, "Authorization: %s", text);
    free(text);
    return 0;
}

static int from_container(struct ash_s3_keys *keys, struct ash_err *err)
{
    const char *relative = ash_env_get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = ash_env_get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    char url[URL_BYTES], line[ASH_S3_TOKEN_BYTES + 32];
    const char *headers[] = {line, NULL};
    struct ash_str text = {0};
    int rc;

    if (relative == NULL && full == NULL) return 0;
    snprintf(url, sizeof(url), "%s%s", relative != NULL ? CONTAINER_HOST : "", relative != NULL ? relative : full);
    if (!is_near(url))
        return ash_err_set(err, -EACCES, "AWS_CONTAINER_CREDENTIALS_FULL_URI must be https or on this machine: %.200s",
                           url);
    rc = authorization_line(line, sizeof(line), err);
    if (rc == 0) rc = ash_curl_fetch("GET", url, line[0] != '\0' ? headers : NULL, CONTAINER_MS, &text, err);
    if (rc == 0) rc = ash_s3_keys_parse(text.data, text.size_bytes, url, keys, err);
    if (text.data != NULL) explicit_bzero(text.data, text.size_bytes);
    ash_str_fini(&text);
    return rc < 0 ? ash_err_prefix(err, rc, "cannot get keys from the container's endpoint") : 1;
}

/* GET host/latest/meta-data/iam/security-credentials/ROLE with the session's token. */
static int ask_instance(const char *host, const char *role, const char *token, struct ash_str *text,
                        struct ash_err *err)
{
    char url[URL_BYTES], line[URL_BYTES];
    const char *headers[] = {line, NULL};

    snprintf(url, sizeof(url), "%s/latest/meta-data/iam/security-credentials/%s", host, role);
    snprintf(line, sizeof(line), "X-aws-ec2-metadata-token: %s", token);
    return ash_curl_fetch("GET", url, headers, INSTANCE_MS, text, err);
}

/* IMDSv2: a token, the role, its keys. Returns 1, 0 if there is no such service or no role, or an error. */
static int from_instance(struct ash_s3_keys *keys, struct ash_err *err)
{
    static const char *const wish[] = {"X-aws-ec2-metadata-token-ttl-seconds: 21600", NULL};
    const char *disabled = ash_env_get("AWS_EC2_METADATA_DISABLED");
    const char *host = ash_env_get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    struct ash_str token = {0}, role = {0}, text = {0};
    char url[URL_BYTES];
    int rc = 0;

    if (disabled != NULL && strcasecmp(disabled, "true") == 0) return 0;
    if (host == NULL) host = INSTANCE_HOST;
    snprintf(url, sizeof(url), "%.*s/latest/api/token", (int)strlen(host) - (host[strlen(host) - 1] == '/'), host);
    if (ash_curl_fetch("PUT", url, wish, INSTANCE_MS, &token, NULL) == 0 && token.size_bytes > 0 &&
        ask_instance(host, "", token.data, &role, NULL) == 0 && role.size_bytes > 0) {
        role.data[strcspn(role.data, "\r\n")] = '\0';
        rc = ask_instance(host, role.data, token.data, &text, err);
        if (rc == 0) rc = ash_s3_keys_parse(text.data, text.size_bytes, "the instance's metadata service", keys, err);
        rc = rc < 0 ? rc : 1;
    }
    ash_str_fini(&token);
    ash_str_fini(&role);
    if (text.data != NULL) explicit_bzero(text.data, text.size_bytes);
    ash_str_fini(&text);
    return rc;
}

/* ---- the chain --------------------------------------------------------------------------------------------------- */

static int read_profile(const char *name, struct ash_s3_profile *profile, struct ash_err *err)
{
    int rc = read_file("AWS_CONFIG_FILE", "config", name, true, profile, err);

    if (rc < 0) return rc;
    return read_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", name, false, profile, err);
}

static int no_keys(const struct ash_s3_profile *profile, const char *name, struct ash_err *err)
{
    if (profile->elsewhere[0] != '\0')
        return ash_err_set(err, -EACCES,
                           "profile '%s' gets its keys through %s, which is not supported: put keys into the "
                           "environment, for example with `aws configure export-credentials --format env`",
                           name, profile->elsewhere);
    return ash_err_set(err, -EACCES,
                       "no keys for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in "
                       "~/.aws/credentials (AWS_PROFILE names it)");
}

int ash_s3_keys_find(const char *profile_name, struct ash_s3_profile *profile_out, struct ash_err *err)
{
    const char *variable = ash_env_get("AWS_PROFILE");
    const char *name = profile_name != NULL ? profile_name : variable != NULL ? variable : "default";
    int rc;

    *profile_out = (struct ash_s3_profile){0};
    rc = read_profile(name, profile_out, err);
    if (rc < 0) return rc;
    if (!profile_out->is_found && (profile_name != NULL || variable != NULL))
        return ash_err_set(err, -EACCES, "there is no profile '%.100s' in ~/.aws/credentials or ~/.aws/config", name);
    if (profile_name == NULL) {
        rc = from_environment(&profile_out->keys, err);
        if (rc != 0) return rc < 0 ? rc : 0;
    }
    if (has_keys(&profile_out->keys)) return 0;
    rc = from_container(&profile_out->keys, err);
    if (rc == 0) rc = from_instance(&profile_out->keys, err);
    if (rc < 0) return rc;
    return rc == 1 ? 0 : no_keys(profile_out, name, err);
}

/* ---- new ones ---------------------------------------------------------------------------------------------------- */

int ash_s3_renew_keys(struct ash_s3 *s3, bool is_refused, struct ash_err *err)
{
    struct ash_s3_profile *profile;
    uint64_t now_ns = ash_clock_ns();
    int rc;

    if (!is_refused && (s3->keys.expires_s <= 0 || s3->keys.expires_s - ash_clock_wall_s() > KEYS_MARGIN_S)) return 0;
    if (!is_refused && now_ns - s3->keys_read_ns < KEYS_PAUSE_NS) return 0;
    profile = calloc(1, sizeof(*profile));
    if (profile == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = ash_s3_keys_find(s3->opts.profile, profile, err);
    if (rc == 0) s3->keys = profile->keys;
    s3->keys_read_ns = now_ns;
    /* Keys that still hold for a while are used while new ones are not to be had. */
    if (rc < 0 && !is_refused && s3->keys.expires_s > ash_clock_wall_s()) rc = 0;
    explicit_bzero(profile, sizeof(*profile));
    free(profile);
    return rc;
}
