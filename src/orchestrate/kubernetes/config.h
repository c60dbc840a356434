/* config - a kubeconfig file: where the cluster is and what proves who we are. */
#ifndef ASH_ORCHESTRATE_KUBERNETES_CONFIG_H
#define ASH_ORCHESTRATE_KUBERNETES_CONFIG_H

#include <stdbool.h>
#include "ashlar/err.h"
#include "base/str.h"

/* All texts are the config's own; NULL where there is none. */
struct ash_kube_config {
    char *server, *kube_namespace;
    char *token;           /* for Authorization: Bearer */
    char *ca, *cert, *key; /* PEM texts */
    char *user, *password; /* basic */
    bool is_insecure;      /* the certificate is not checked */
};

/* The current context of a kubeconfig text. folder is what relative paths in it are relative to. A user of kind `exec`
 * is asked by running its program. Returns 0, -EINVAL with what is wrong, or an errno of a file it names. */
int ash_kube_config_parse(const char *text, size_t size_bytes, const char *name, const char *folder,
                          struct ash_kube_config *config_out, struct ash_err *err);
/* From KUBECONFIG, ~/.kube/config or a pod's service account. -ENOENT where there is none. */
int ash_kube_config_find(struct ash_kube_config *config_out, struct ash_err *err);
/* Frees the texts. */
void ash_kube_config_free(struct ash_kube_config *config);

#endif
