/* Kubeconfig files as kubectl reads them: contexts name a cluster and a user; secrets are in the file, in files next to
 * it, or come from a program. */
#include "orchestrate/kubernetes/config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/command.h"
#include "base/file.h"
#include "base/json.h"
#include "base/opts.h"
#include "base/yaml.h"

#define FILE_MAX ((size_t)1 << 20)
#define EXEC_LIMIT_S 60.0
#define ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount/"

struct parser {
    const char *name, *folder;
    struct ash_kube_config *config;
    struct ash_err *err;
};

/* ---- base64 ------------------------------------------------------------------------------------------------------ */

static int base64_value(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;

    return at != NULL ? (int)(at - digits) : -1;
}

/* The contents are PEM texts: a NUL in them is an error. Returns a text to free, or NULL. */
static char *decode_base64(const char *text)
{
    char *out = malloc(strlen(text) / 4 * 3 + 4);
    unsigned bits = 0, held = 0;
    size_t used = 0;

    for (; out != NULL && *text != '\0' && *text != '='; text++) {
        int value = base64_value(*text);

        if (*text == '\n' || *text == '\r' || *text == ' ') continue;
        if (value < 0) goto bad;
        bits = bits << 6 | (unsigned)value;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        ash_assert(held < 6); /* never two bytes at once */
        out[used++] = (char)(bits >> held & 255);
        if (out[used - 1] == '\0') goto bad;
    }
    if (out != NULL) out[used] = '\0';
    return out;

bad:
    free(out);
    return NULL;
}

/* ---- one secret -------------------------------------------------------------------------------------------------- */

static int read_beside(const struct parser *parser, const char *path, char **text_out)
{
    char full[PATH_MAX];
    size_t size = 0;

    if (path[0] == '/')
        snprintf(full, sizeof(full), "%s", path);
    else if (ash_path_join(full, sizeof(full), parser->folder, path) < 0)
        return ash_err_set(parser->err, -ENAMETOOLONG, "%s: a path in it is too long", parser->name);
    return ash_file_read(full, FILE_MAX, text_out, &size, parser->err);
}

/* KEY-data (base64) in the map, or the file that KEY names, or neither. */
static int read_pem(const struct parser *parser, const json_t *map, const char *key, char **text_out)
{
    char data_key[64];
    const char *data, *path = json_string_value(json_object_get(map, key));

    snprintf(data_key, sizeof(data_key), "%s-data", key);
    data = json_string_value(json_object_get(map, data_key));
    if (data != NULL) {
        *text_out = decode_base64(data);
        if (*text_out == NULL) return ash_err_set(parser->err, -EINVAL, "%s: %s is not base64", parser->name, data_key);
        return 0;
    }
    return path != NULL ? read_beside(parser, path, text_out) : 0;
}

static int copy_text(const struct parser *parser, const json_t *map, const char *key, char **text_out)
{
    const char *text = json_string_value(json_object_get(map, key));

    if (text == NULL) return 0;
    *text_out = strdup(text);
    return *text_out != NULL ? 0 : ash_err_set(parser->err, -ENOMEM, "%s: out of memory", parser->name);
}

/* ---- users ------------------------------------------------------------------------------------------------------- */

#define EXEC_WORDS_MAX 64

/* The program's answer: an ExecCredential with a token or a certificate. */
static int take_credential(const struct parser *parser, const char *program, const char *text)
{
    json_t *json = NULL;
    const json_t *status;
    int rc = ash_json_parse(text, strlen(text), program, &json, parser->err);

    if (rc < 0) return rc;
    status = json_object_get(json, "status");
    rc = copy_text(parser, status, "token", &parser->config->token);
    if (rc == 0) rc = copy_text(parser, status, "clientCertificateData", &parser->config->cert);
    if (rc == 0) rc = copy_text(parser, status, "clientKeyData", &parser->config->key);
    json_decref(json);
    if (rc == 0 && parser->config->token == NULL && parser->config->cert == NULL)
        return ash_err_set(parser->err, -EINVAL, "%s: %s gives neither a token nor a certificate", parser->name,
                           program);
    return rc;
}

static int ask_program(const struct parser *parser, const json_t *exec)
{
    const char *words[EXEC_WORDS_MAX + 2] = {json_string_value(json_object_get(exec, "command"))};
    const json_t *args = json_object_get(exec, "args"), *env = json_object_get(exec, "env");
    struct ash_command_result result;
    int rc;

    if (words[0] == NULL || json_array_size(args) > EXEC_WORDS_MAX)
        return ash_err_set(parser->err, -EINVAL, "%s: users: exec has no command that can be run", parser->name);
    for (size_t i = 0; i < json_array_size(args); i++) {
        const char *text = json_string_value(json_array_get(args, i));

        words[i + 1] = text != NULL ? text : "";
    }
    for (size_t i = 0; i < json_array_size(env); i++) { /* for this program and what we run after it */
        const char *name = json_string_value(json_object_get(json_array_get(env, i), "name"));
        const char *value = json_string_value(json_object_get(json_array_get(env, i), "value"));

        if (name != NULL && value != NULL) setenv(name, value, 1);
    }
    rc = ash_command_run(&(struct ash_command){.argv = words, .limit_s = EXEC_LIMIT_S}, &result, parser->err);
    if (rc == 0 && result.code != 0)
        rc = ash_err_set(parser->err, -EACCES, "%s: %s failed: %.*s", parser->name, words[0],
                         (int)strcspn(result.err.data, "\n"), result.err.data);
    if (rc == 0) rc = take_credential(parser, words[0], result.out.data);
    ash_command_free(&result);
    return rc;
}

/* A token file of a user ends with a newline, as files do. */
static void trim(char *text)
{
    size_t length = text != NULL ? strlen(text) : 0;

    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r' || text[length - 1] == ' '))
        text[--length] = '\0';
}

static int read_user(const struct parser *parser, const json_t *user)
{
    struct ash_kube_config *config = parser->config;
    const char *file = json_string_value(json_object_get(user, "tokenFile"));
    int rc = copy_text(parser, user, "token", &config->token);

    if (rc == 0 && config->token == NULL && file != NULL) rc = read_beside(parser, file, &config->token);
    trim(config->token);
    if (rc == 0) rc = read_pem(parser, user, "client-certificate", &config->cert);
    if (rc == 0) rc = read_pem(parser, user, "client-key", &config->key);
    if (rc == 0) rc = copy_text(parser, user, "username", &config->user);
    if (rc == 0) rc = copy_text(parser, user, "password", &config->password);
    if (rc == 0 && json_is_object(json_object_get(user, "exec")))
        rc = ask_program(parser, json_object_get(user, "exec"));
    return rc;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* The entry of list called name: {"name": ..., inner: {...}}. Borrowed; NULL: none. */
static const json_t *entry_of(const json_t *root, const char *list, const char *inner, const char *name)
{
    const json_t *entries = json_object_get(root, list);

    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i);
        const char *own = json_string_value(json_object_get(entry, "name"));

        if (own != NULL && name != NULL && strcmp(own, name) == 0) return json_object_get(entry, inner);
    }
    return NULL;
}

static int read_context(const struct parser *parser, const json_t *root)
{
    const char *current = json_string_value(json_object_get(root, "current-context"));
    const json_t *context = entry_of(root, "contexts", "context", current);
    const json_t *cluster, *user;
    int rc;

    if (current == NULL || current[0] == '\0')
        return ash_err_set(parser->err, -EINVAL, "%s: no current-context: `kubectl config use-context NAME` sets one",
                           parser->name);
    if (context == NULL)
        return ash_err_set(parser->err, -EINVAL, "%s: there is no context '%.60s'", parser->name, current);
    cluster = entry_of(root, "clusters", "cluster", json_string_value(json_object_get(context, "cluster")));
    user = entry_of(root, "users", "user", json_string_value(json_object_get(context, "user")));
    if (json_string_value(json_object_get(cluster, "server")) == NULL)
        return ash_err_set(parser->err, -EINVAL, "%s: the cluster of context '%.60s' has no server", parser->name,
                           current);
    rc = copy_text(parser, cluster, "server", &parser->config->server);
    if (rc == 0) rc = copy_text(parser, context, "namespace", &parser->config->kube_namespace);
    if (rc == 0) rc = read_pem(parser, cluster, "certificate-authority", &parser->config->ca);
    parser->config->is_insecure = json_is_true(json_object_get(cluster, "insecure-skip-tls-verify"));
    return rc == 0 && user != NULL ? read_user(parser, user) : rc;
}

int ash_kube_config_parse(const char *text, size_t size_bytes, const char *name, const char *folder,
                          struct ash_kube_config *config_out, struct ash_err *err)
{
    struct parser parser = {name, folder, config_out, err};
    json_t *root = NULL;
    int rc = ash_yaml_parse(text, size_bytes, name, &root, err);

    *config_out = (struct ash_kube_config){0};
    if (rc < 0) return rc;
    rc = read_context(&parser, root);
    json_decref(root);
    if (rc < 0) ash_kube_config_free(config_out);
    return rc;
}

/* ---- locations --------------------------------------------------------------------------------------------------- */

static int from_pod(struct ash_kube_config *config, struct ash_err *err)
{
    const char *host = ash_env_get("KUBERNETES_SERVICE_HOST"), *port = ash_env_get("KUBERNETES_SERVICE_PORT");
    size_t size = 0;
    int rc = ash_file_read(ACCOUNT "token", FILE_MAX, &config->token, &size, err);

    if (rc == 0) rc = ash_file_read(ACCOUNT "ca.crt", FILE_MAX, &config->ca, &size, err);
    if (rc == 0) rc = ash_file_read(ACCOUNT "namespace", FILE_MAX, &config->kube_namespace, &size, err);
    trim(config->token);
    trim(config->kube_namespace);
    if (rc == 0 && asprintf(&config->server, strchr(host, ':') != NULL ? "https://[%s]:%s" : "https://%s:%s", host,
                            port != NULL ? port : "443") < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory");
    return rc;
}

static int from_file(const char *path, struct ash_kube_config *config, struct ash_err *err)
{
    char folder[PATH_MAX], *text = NULL;
    size_t size = 0;
    int rc = ash_file_read(path, FILE_MAX, &text, &size, err);

    if (rc < 0) return rc;
    snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') != NULL ? strrchr(path, '/') - path : 1),
             strrchr(path, '/') != NULL ? path : ".");
    rc = ash_kube_config_parse(text, size, path, folder, config, err);
    free(text);
    return rc;
}

int ash_kube_config_find(struct ash_kube_config *config_out, struct ash_err *err)
{
    const char *named = ash_env_get("KUBECONFIG"), *home = ash_env_get("HOME");
    char path[PATH_MAX];
    int rc;

    *config_out = (struct ash_kube_config){0};
    if (named != NULL) { /* a list of files: the first counts */
        snprintf(path, sizeof(path), "%.*s", (int)strcspn(named, ":"), named);
        return from_file(path, config_out, err);
    }
    snprintf(path, sizeof(path), "%s/.kube/config", home != NULL ? home : "");
    if (ash_path_exists(path)) return from_file(path, config_out, err);
    if (ash_env_get("KUBERNETES_SERVICE_HOST") == NULL)
        return ash_err_set(err, -ENOENT, "no Kubernetes cluster is known here: set KUBECONFIG, or write %s", path);
    rc = from_pod(config_out, err);
    if (rc < 0) ash_kube_config_free(config_out);
    return rc;
}

void ash_kube_config_free(struct ash_kube_config *config)
{
    free(config->server);
    free(config->kube_namespace);
    free(config->token);
    free(config->ca);
    free(config->cert);
    free(config->key);
    free(config->user);
    free(config->password);
    *config = (struct ash_kube_config){0};
}
