/* Addresses of replicas. */
#include "serve/route/target.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static int add(struct ash_route_targets *targets, const struct ash_route_target *target, struct ash_err *err)
{
    for (size_t i = 0; i < targets->count; i++)
        if (strcmp(targets->items[i].name, target->name) == 0) return 0;
    if (targets->count == ASH_ROUTE_TARGETS_MAX)
        return ash_err_set(err, -E2BIG, "more than %d replicas", ASH_ROUTE_TARGETS_MAX);
    if (ash_array_reserve(&targets->items, &targets->capacity, targets->count + 1, sizeof(*targets->items)) < 0)
        return ash_err_set(err, -ENOMEM, "no memory for the list of replicas");
    targets->items[targets->count++] = *target;
    return 0;
}

static void set_name(struct ash_route_target *target)
{
    bool is_v6 = strchr(target->url.host, ':') != NULL;

    snprintf(target->host, sizeof(target->host), is_v6 ? "[%s]:%d" : "%s:%d", target->url.host, target->url.port);
    snprintf(target->name, sizeof(target->name), "http://%.*s%.*s", ASH_LOAD_HOST_BYTES - 128, target->host, 240,
             target->url.path);
}

/* What the name server says of a host. Returns 0 with a list, or as ash_route_targets_add. */
static int resolve(const struct ash_load_url *url, struct addrinfo **list_out, struct ash_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    char port[16];
    int code;

    snprintf(port, sizeof(port), "%d", url->port);
    code = getaddrinfo(url->host, port, &hints, list_out);
    if (code == 0) return 0;
    return ash_err_set(err, code == EAI_NONAME ? -ENOENT : -EAGAIN, "%s: %s", url->host, gai_strerror(code));
}

static int add_one(struct ash_route_targets *targets, struct ash_route_target *target, const struct addrinfo *at,
                   struct ash_err *err)
{
    memcpy(&target->addr, at->ai_addr, at->ai_addrlen);
    target->addr_bytes = at->ai_addrlen;
    set_name(target);
    return add(targets, target, err);
}

/* Every address of a name is another replica. */
static int add_all(struct ash_route_targets *targets, struct ash_route_target *target, const struct addrinfo *list,
                   struct ash_err *err)
{
    int rc = 0;

    for (const struct addrinfo *at = list; at != NULL && rc == 0; at = at->ai_next) {
        if (getnameinfo(at->ai_addr, at->ai_addrlen, target->url.host, sizeof(target->url.host), NULL, 0,
                        NI_NUMERICHOST) != 0)
            continue;
        rc = add_one(targets, target, at, err);
    }
    return rc;
}

int ash_route_targets_add(struct ash_route_targets *targets, const char *text, struct ash_err *err)
{
    bool is_dns = strncmp(text, "dns://", 6) == 0;
    struct ash_route_target target = {0};
    struct addrinfo *list = NULL;
    char http[ASH_ROUTE_NAME_BYTES];
    int rc;

    snprintf(http, sizeof(http), is_dns ? "http://%s" : "%s", is_dns ? text + 6 : text);
    rc = ash_load_url_parse(http, &target.url, err);
    if (rc < 0) return rc;
    rc = resolve(&target.url, &list, err);
    if (rc == -ENOENT && is_dns) return 0;
    if (rc < 0) return rc;
    rc = is_dns ? add_all(targets, &target, list, err) : add_one(targets, &target, list, err);
    freeaddrinfo(list);
    return rc;
}

int ash_route_targets_add_lines(struct ash_route_targets *targets, const char *text, const char *name,
                                struct ash_err *err)
{
    int rc = 0;

    for (size_t line = 1; *text != '\0' && rc == 0; line++) {
        size_t length = strcspn(text, "\n"), used = strcspn(text, "#\n");
        char address[ASH_ROUTE_NAME_BYTES], where[ASH_ROUTE_NAME_BYTES];

        while (used > 0 && strchr(" \t\r", text[used - 1]) != NULL)
            used--;
        while (used > 0 && strchr(" \t", *text) != NULL) {
            text++;
            used--;
            length--;
        }
        snprintf(address, sizeof(address), "%.*s", (int)used, text);
        snprintf(where, sizeof(where), "%.200s:%zu", name, line);
        if (used > 0) rc = ash_route_targets_add(targets, address, err);
        if (rc < 0) return ash_err_prefix(err, rc, "%s", where);
        text += length + (text[length] == '\n');
    }
    return rc;
}

void ash_route_targets_fini(struct ash_route_targets *targets)
{
    free(targets->items);
    *targets = (struct ash_route_targets){0};
}
